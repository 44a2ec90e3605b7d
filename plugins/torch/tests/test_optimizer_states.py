"""An optimizer's state has the same dtypes and bits after a broadcast, and after `restore`."""

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from farandole_torch._optimizer_state import install_state
from optimizer_states import drawn, exact, forged

pytestmark = pytest.mark.timeout(180)
SEEDS = range(350)


@pytest.fixture(scope="module", autouse=True)
def alone():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.parametrize("own_format", [False, True])
def test_a_restored_state_is_that_of_the_commit(own_format):
    for seed in SEEDS:
        optimizer = drawn(seed, own_format=own_format)
        state = hvd.elastic.TorchState(optimizer=optimizer)
        committed = exact(optimizer.state_dict())
        state.save()
        for _ in range(2):
            forged(optimizer)
            state.restore()
            assert exact(optimizer.state_dict()) == committed, seed


def broadcast(own_format):
    root = hvd.size() - 1
    for seed in SEEDS:
        is_empty = hvd.rank() != root and seed % 3
        optimizer = drawn(seed, has_state=not is_empty, own_format=own_format)
        if hvd.rank() != root and not is_empty:
            forged(optimizer)
        hvd.broadcast_optimizer_state(optimizer, root_rank=root)
        assert exact(optimizer.state_dict()) == exact(drawn(seed, own_format=own_format).state_dict()), seed


def sync():
    for seed in SEEDS[::10]:
        optimizer = drawn(seed, has_state=hvd.rank() == 0)
        hvd.elastic.TorchState(optimizer=optimizer).sync()
        assert exact(optimizer.state_dict()) == exact(drawn(seed).state_dict()), seed


def test_every_rank_gets_the_state_of_the_root():
    shared = world(2)
    for own_format in (False, True):
        shared.run(broadcast, own_format)
    shared.run(sync)


def test_tensors_go_to_the_device_of_their_parameter_as_in_torch():
    """Without a GPU, "meta" stands for it."""
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16, device="meta"))
    for options, device in (({}, "cpu"), ({"capturable": True}, "meta")):
        optimizer = torch.optim.Adam([parameter], **options)
        given = {"step": torch.tensor(3.0), "exp_avg": torch.ones(2), "parts": [torch.ones(1, dtype=torch.int64)]}
        install_state(optimizer, {**optimizer.state_dict(), "state": {0: given}})
        state = optimizer.state[parameter]
        assert (state["step"].device.type, state["exp_avg"].device.type) == (device, "meta")
        assert (state["exp_avg"].dtype, state["parts"][0].dtype) == (torch.float32, torch.int64)
        assert state["parts"][0].device.type == "meta"
