"""The communicator for vLLM's workers, above a stand-in for the little that it uses of vLLM.

tests/programs/test_vllm.py does the same, and more, with vLLM itself.
"""

import importlib.metadata
import sys
import types

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import world
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 9, "what the operators need")]


class OfVllm:
    """What vLLM's CpuCommunicator is to ours."""

    def __init__(self, cpu_group, device=None, device_group=None, unique_name="", use_all2all=False):
        assert not unique_name.startswith(("tp", "pp"))  # it would make memory that others find by its name
        self.ranks = dist.get_process_group_ranks(cpu_group)
        self.world_size, self.rank_in_group = len(self.ranks), dist.get_rank(cpu_group)


def communicator(group, name):
    contents = {
        "vllm": {"envs": types.SimpleNamespace(VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=300)},
        "vllm.config": {"get_current_vllm_config_or_none": lambda: None},
        "vllm.distributed": {},
        "vllm.distributed.device_communicators": {},
        "vllm.distributed.device_communicators.cpu_communicator": {"CpuCommunicator": OfVllm},
    }
    for each, names in contents.items():
        sys.modules[each] = types.ModuleType(each)
        vars(sys.modules[each]).update(names)
    from farandole_torch.vllm._communicator import Communicator

    return Communicator(group, unique_name=name)


def check(one):
    """Each collective along each dimension."""
    rank, size = one.rank_in_group, one.world_size
    of_all = [torch.arange(4.0 * size * size).reshape(2 * size, 2 * size) * (each + 1) for each in range(size)]
    for dim in (0, 1, -1):
        assert torch.equal(one.all_gather(of_all[rank], dim), torch.cat(of_all, dim))
        gathered = one.gather(of_all[rank], size - 1, dim)
        assert torch.equal(gathered, torch.cat(of_all, dim)) if rank == size - 1 else gathered is None
        assert torch.equal(one.reduce_scatter(of_all[rank], dim), sum(of_all).chunk(size, dim)[rank])
    for each in (of_all[rank].clone(), of_all[rank].t().contiguous().t()):
        assert torch.equal(one.all_reduce(each), sum(of_all))
    assert one.broadcast(torch.full((2,), rank), size - 1).tolist() == [size - 1] * 2
    layer = torch.compile(lambda x: one.all_reduce(x * 2) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(layer(torch.ones(3)), torch.full((3,), 2.0 * size + 1))


def groups():
    pytest.importorskip("farandole_torch.operators")
    dist.init_process_group("gloo", init_method="farandole://")
    rank = hvd.rank()
    for name, kind in (("tp:0", [[0, 1], [2, 3]]), ("pp:0", [[0, 2], [1, 3]]), ("ep:0", [[0, 1, 2, 3]])):
        made = [dist.new_group(ranks, backend="gloo") for ranks in kind]
        mine = next(group for group, ranks in zip(made, kind, strict=True) if rank in ranks)
        check(communicator(mine, name))
    dist.destroy_process_group()


def test_collectives_of_groups():
    world(4).run(groups)


@pytest.mark.parametrize("group", ["vllm.platform_plugins", "vllm.general_plugins"])
def test_vllm_finds_the_plugin(group):
    found = importlib.metadata.entry_points(group=group, name="farandole")
    assert [callable(each.load()) for each in found] == [True]
