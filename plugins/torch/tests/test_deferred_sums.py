"""Sums of DistributedDataParallel over the backend "farandole", which begin when backward is over."""

import os

import pytest
import torch
import torch.distributed as dist
from farandole.testing import world
from test_distributed import inputs_of, joined, network
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]


def deferring(hooks_sum):
    """Sums in backward begin when it is over, on all ranks or on none; those that hooks ask for, at once."""
    rank, size = joined()
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, cores if rank == 0 else cores[:size])  # rank 0 alone may see idle cores
        group = dist.new_group()
    finally:
        os.sched_setaffinity(0, cores)
    parallel = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.0001, process_group=group)
    seen, sums = [], []

    def hook(gradient):
        seen.append(bool(group._deferred))
        if hooks_sum:
            work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
            sums.append(work.get_future().wait()[0].tolist())

    parallel.module[0].weight.register_hook(hook)
    for _ in range(2):  # in the first, all gradients are in one bucket
        parallel.zero_grad()
        parallel(inputs_of(rank, 0)).square().mean().backward()
    assert seen[-1] == (len(cores) <= size) and not group._deferred
    assert sums == ([[size] * 2] * 2 if hooks_sum else [])
    everyones = torch.nn.utils.parameters_to_vector(each.grad for each in parallel.parameters())
    whole = network()
    sum(whole(inputs_of(k, 0)).square().mean() / size for k in range(size)).backward()
    assert torch.allclose(everyones, torch.nn.utils.parameters_to_vector(each.grad for each in whole.parameters()))


def uneven():
    """A rank without any batch joins those that have some."""
    rank, size = joined()
    model = network()
    parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=dist.new_group())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    with parallel.join():
        for step in range(2 * rank):
            optimizer.zero_grad()
            parallel(inputs_of(rank, step)).square().mean().backward()
            optimizer.step()
    whole = network()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(2 * (size - 1)):
        optimizer.zero_grad()
        losses = [whole(inputs_of(k, step)).square().mean() for k in range(size) if step < 2 * k]
        (sum(losses) / size).backward()
        optimizer.step()
    for got, want in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(got, want, rtol=1e-9, atol=1e-12)


def failing_once():
    """A backward that fails on all ranks leaves nothing that keeps the next one waiting."""
    rank, _ = joined()
    group = dist.new_group()
    parallel = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.0001, process_group=group)
    fails = [False, True, False]

    def hook(gradient):
        if fails.pop(0):
            raise ValueError("a mistake")

    parallel.module[0].weight.register_hook(hook)
    parallel(inputs_of(rank, 0)).square().mean().backward()
    with pytest.raises(ValueError, match="a mistake"):
        parallel(inputs_of(rank, 0)).square().mean().backward()
    again = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.0001, process_group=group)
    again(inputs_of(rank, 0)).square().mean().backward()
    assert not group._deferred


def test_a_failed_backward_leaves_nothing_behind():
    world(2).run(failing_once)


def test_ranks_with_fewer_batches_join_those_with_more():
    world(2).run(uneven)


@pytest.mark.parametrize("hooks_sum", [False, True])
def test_sums_in_backward_begin_when_it_is_over_on_all_ranks_or_none(hooks_sum):
    world(2).run(deferring, hooks_sum)
