"""A warning where the ranks begin to train from different parameters."""

import os

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from farandole_torch._checksums import checksums
from logs import Logged
from training import loss_of, network, wrapped

pytestmark = pytest.mark.timeout(180)


def trained(model, optimizer, steps=2):
    """What is logged in the first steps."""
    with Logged() as warned:
        for _ in range(steps):
            loss_of(model).backward()
            optimizer.step()
            optimizer.zero_grad()
    return hvd.broadcast_object(warned.lines if hvd.rank() == 0 else None) + (warned.lines if hvd.rank() else [])


def different(which=slice(None)):
    """A model whose parameters are each rank's own."""
    model = network()
    with torch.no_grad():
        for parameter in list(model.parameters())[which]:
            parameter += hvd.rank()
    return model


def forgotten_broadcast(options):
    model = different(slice(1, 3))
    (line,) = trained(model, wrapped(model, **options))
    assert "'0.bias' on rank 1 is not that of rank 0 (2 parameters differ in all)" in line, line
    assert "Call broadcast_parameters(model.state_dict(), root_rank=0) before the first step" in line


def equal_parameters():
    """Nothing is said where they are equal, or meant to differ."""
    model = different()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = wrapped(model)
    assert trained(model, optimizer) == []
    optimizer._farandole.forget()  # as another world does, which compares again
    assert trained(model, optimizer) == []
    frozen = different(slice(2, None))
    frozen[2].requires_grad_(False)
    assert trained(frozen, wrapped(frozen)) == []
    excluded = different(slice(2, None))
    shared = torch.optim.SGD(excluded[0].parameters(), lr=0.1)
    assert trained(excluded, hvd.DistributedOptimizer(shared, excluded[0].named_parameters())) == []


def turned_off_on_one_rank():
    for rank in range(hvd.size()):
        if hvd.rank() == rank:
            os.environ["FARANDOLE_CHECK_PARAMETERS"] = "0"
        model = different()
        assert trained(model, wrapped(model)) == []
        os.environ.pop("FARANDOLE_CHECK_PARAMETERS", None)


def of_a_set():
    """Ranks outside of the set train another model."""
    pair = hvd.add_process_set([1, 2])
    model = network()
    with torch.no_grad():
        model[0].weight += hvd.rank() == 0
        model[2].bias += hvd.rank() == 2
    with Logged() as warned:
        loss_of(model).backward()
        wrapped(model, process_set=pair).step()
    told = hvd.allgather_object(warned.lines)
    assert [len(lines) for lines in told] == [0, 1, 0] and "'2.bias' on rank 2 is not that of rank 1." in told[1][0]
    hvd.remove_process_set(pair)


@pytest.mark.parametrize("options", [{}, {"groups": 1, "overlap": True}, {"op": hvd.Adasum}], ids=str)
def test_a_forgotten_broadcast_is_named_once(options):
    world(2).run(forgotten_broadcast, options)


@pytest.mark.parametrize("case", [equal_parameters, turned_off_on_one_rank])
def test_nothing_is_said_about(case):
    world(2).run(case)


def test_the_ranks_of_a_set_are_compared():
    world(3).run(of_a_set)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_values_are_compared_whatever_the_memory_is_like(dtype):
    values = torch.arange(1500.0).reshape(10, 150).to(dtype)
    for each in (values, values.t(), values[:, 1:], values[1:, 1:], values[:3, :5], values[0, 0], values[:0]):
        moved = torch.empty(each.numel() + 1, dtype=dtype)[1:].view(each.shape).copy_(each)
        changed = each.contiguous().clone()
        if each.numel():
            changed.view(-1)[-1] *= 3
            changed.view(-1)[-1] += 1
        sums = checksums([torch.nn.Parameter(tensor) for tensor in (each, moved, changed, each)], [True] * 3 + [False])
        assert sums[0] == sums[1] != 0 and (sums[0] != sums[2] or not each.numel()) and sums[3] == 0
