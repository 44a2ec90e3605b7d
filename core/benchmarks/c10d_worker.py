"""A rank of torch.distributed in the benchmark, with the back end that is named: in-place sums of float32.

c10d_worker.py gloo
c10d_worker.py farandole
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import worker


class Sums:
    """Sums of one tensor, which a new size replaces."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._tensor = torch.zeros(0)

    def measure(self, _what: str, size_bytes: int, repetitions: int, batches: int) -> list[float]:
        if self._tensor.nbytes != size_bytes:
            self._tensor = torch.ones(size_bytes // 4)
            dist.all_reduce(self._tensor)
            assert bool((self._tensor == self._ranks).all()), "a wrong sum"
            self._tensor.zero_()
        return worker.time_batches(lambda: dist.all_reduce(self._tensor), repetitions, batches)


def join(backend: str, rank: int, ranks: int) -> None:
    if backend == "farandole":
        import farandole_torch_autoload

        farandole_torch_autoload.register()  # where no entry point is installed
        dist.init_process_group(backend, init_method="farandole://")
        return
    store = dist.FileStore(os.environ["BENCH_SHARED"], ranks)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)


def main() -> None:
    rank, ranks = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_RANKS"])
    worker.pin_to_core(rank)
    torch.set_num_threads(1)
    join(sys.argv[1], rank, ranks)
    worker.serve(rank, ranks, Sums(ranks).measure)


if __name__ == "__main__":
    main()
