"""A worker of vLLM without an engine: vllm_worker.py TASK RANK SIZE ADDRESS. Prints a line when its groups are made."""

import os
import sys
import time

os.environ["VLLM_DIST_IDENT"] = "12345"  # by which vLLM would name the shared memory: alike in two servers
import torch
from vllm.config import ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.platforms import current_platform
from vllm.plugins import load_general_plugins

TASK, RANK, SIZE, PLACE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def expected(dtype):
    """The tensors of all ranks."""
    return [(torch.arange(2 * SIZE * 6).reshape(2 * SIZE, 6) % 13 + rank).to(dtype) for rank in range(SIZE)]


def check_collectives(group):
    for dtype in (torch.float32, torch.bfloat16):
        for dim in (0, 1, -1):
            all_of = expected(dtype)
            whole = torch.cat(all_of, dim)
            assert torch.equal(group.all_reduce(all_of[RANK].clone()), sum(all_of))
            assert torch.equal(group.all_reduce(all_of[RANK].t().clone().t()), sum(all_of))
            assert torch.equal(group.all_gather(all_of[RANK], dim), whole)
            found = group.gather(all_of[RANK], 0, dim)
            assert torch.equal(found, whole) if RANK == 0 else found is None
            if all_of[0].shape[dim] % SIZE == 0:
                mine = sum(all_of).chunk(SIZE, dim)[RANK]
                assert torch.equal(group.reduce_scatter(all_of[RANK], dim), mine)
        tensor = torch.full((3,), float(RANK)).to(dtype)
        assert group.device_communicator.broadcast(tensor, SIZE - 1).tolist() == [SIZE - 1] * 3


def check_compiled(group):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(x):
        return group.all_reduce(x * 2) + group.all_gather(x, 0).sum()

    assert torch.equal(layer(torch.full((2,), RANK + 1.0)), torch.full((2,), 2.0 * SIZE * (SIZE + 1)))


def main():
    load_general_plugins()
    config = VllmConfig(parallel_config=ParallelConfig(tensor_parallel_size=SIZE, distributed_timeout_seconds=6))
    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(SIZE, RANK, f"tcp://{PLACE}", RANK, current_platform.dist_backend)
        parallel_state.initialize_model_parallel(SIZE)
    group = parallel_state.get_tp_group()
    print(type(group.device_communicator).__module__, current_platform.is_cpu(), os.getpid(), flush=True)
    if TASK == "collectives":
        check_collectives(group)
        check_compiled(group)
    else:
        tensor = torch.ones(4096)
        try:
            while True:  # until another worker fails
                group.all_reduce(tensor)
        except RuntimeError as error:
            print(f"{time.time()} {error}", flush=True)
            os._exit(1)  # Gloo's groups may take longer to end
    print("done", flush=True)


main()
