"""One allreduce of a tensor on a GPU: Farandole beside NCCL and Gloo by torch.distributed.

    farandole run -np 2 --backend nccl,native python plugins/torch/benchmarks/gpus.py

In place and blocking: each call ends when the result is on the GPU. The ways take turns of some calls in the same
processes. A time is one call's, on rank 0; "copies" are the copies to pinned host memory and back, without another
rank. Ranks may share a GPU: each says that it is a host of its own, since NCCL refuses them else.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("NCCL_HOSTID", f"rank-{os.environ.get('FARANDOLE_RANK')}")  # before NCCL is opened
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import farandole_torch as hvd
import farandole_torch.distributed  # finds the other ranks for torch.distributed
import torch
import torch.distributed as dist

Call = Callable[[Any], None]


def main() -> None:
    parser = argparse.ArgumentParser(description="Time an allreduce of tensors on a GPU.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 64 << 10, 1 << 20, 16 << 20], help="bytes")
    parser.add_argument("--calls", type=int, default=40, help="in a turn, of small tensors")
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args()
    hvd.init()
    dist.init_process_group("nccl", init_method="farandole://")
    gloo = dist.new_group(backend="gloo")
    ways: dict[str, Call] = {
        "farandole": lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name=f"of {tensor.numel()}"),
        "torch, NCCL": lambda tensor: all_reduce(tensor, None),
        "torch, Gloo": lambda tensor: all_reduce(tensor, gloo),
    }
    if hvd.rank() == 0:
        print(f"farandole by {os.environ.get('FARANDOLE_BACKEND', 'native')}; microseconds, minimum / median")
        print("| bytes |", " | ".join([*ways, "copies"]), "|")
        print("|---:|" + "---:|" * (len(ways) + 1))
    for size in args.sizes:
        times = measure(ways, size, args)
        if hvd.rank() == 0:
            cells = [f"{min(taken) * 1e6:,.0f} / {statistics.median(taken) * 1e6:,.0f}" for taken in times]
            print(f"| {size:,} |", " | ".join(cells), "|", flush=True)
    dist.destroy_process_group()


def all_reduce(tensor: Any, group: Any) -> None:
    dist.all_reduce(tensor, group=group)
    torch.cuda.current_stream().synchronize()


def measure(ways: dict[str, Call], size: int, args: argparse.Namespace) -> list[list[float]]:
    """Seconds of each call, by ways; the copies come last."""
    tensor = torch.ones(size // 4, device="cuda")
    pinned = torch.ones(size // 4, pin_memory=True)

    def copies(of: Any) -> None:
        pinned.copy_(of, non_blocking=True)
        of.copy_(pinned, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    calls = max(4, min(args.calls, (args.calls << 20) // size))
    taken: list[list[float]] = []
    for number in range(args.rounds + 1):
        for way, call in enumerate([*ways.values(), copies]):
            times = turn(call, tensor, calls)
            if number == 0:  # connects the ranks
                taken.append([])
            else:
                taken[way] += times
    return taken


def turn(call: Call, tensor: Any, calls: int) -> list[float]:
    """Seconds of each of so many calls, on ones: sums of sums would not be finite."""
    tensor.fill_(1)
    torch.cuda.synchronize()
    hvd.barrier()
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call(tensor)
        times.append(time.perf_counter() - began)
    return times


if __name__ == "__main__":
    main()
