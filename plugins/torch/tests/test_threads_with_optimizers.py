"""Two models in two threads, each with a distributed optimizer of its own."""

import threading

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from training import loss_of, network

pytestmark = pytest.mark.timeout(180)
STEPS = 5


def train(model, prefix, factor, **options):
    """Train the model with gradients that are `factor` times those of the other thread's; returns its parameters."""
    named = [(f"{prefix}.{name}", parameter) for name, parameter in model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named, **options)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (factor * loss_of(model)).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).tolist()


def in_threads(options):
    """Each has the parameters that it has where it trains alone, whatever the order of their steps."""
    expected = {factor: train(network(), f"alone{factor}", factor, **options) for factor in (1, 2)}
    models = {factor: network() for factor in (1, 2)}  # here, since threads share the seed of random numbers
    found, start = {}, threading.Barrier(2)

    def run(factor):
        start.wait()
        found[factor] = train(models[factor], f"model{factor}", factor, **options)

    order = (1, 2) if hvd.rank() == 0 else (2, 1)
    threads = [threading.Thread(target=run, args=(factor,)) for factor in order]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == expected


def same_names():
    """While one thread reduces, another optimizer with the same names is told so, before it sends anything."""
    model, other = network(), network()
    first = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    second = hvd.DistributedOptimizer(torch.optim.SGD(other.parameters(), lr=0.1), other.named_parameters())
    told, reduce = [], first._farandole._reduce

    def while_the_other_steps():
        loss_of(other).backward()
        try:
            second.step()
        except hvd.ArgumentError as error:
            told.append(str(error))
        reduce()

    first._farandole._reduce = while_the_other_steps
    loss_of(model).backward()
    first.step()
    assert "the same names, '0.bias' among them, reduce gradients in two threads" in told[0], told
    second.step()


@pytest.mark.parametrize("options", [{}, {"groups": 1, "overlap": True}, {"op": hvd.Adasum}], ids=str)
def test_each_thread_trains_its_own(options):
    world(2).run(in_threads, options)


def test_the_same_names_are_told():
    world(2).run(same_names)
