"""Once every gradient has been reduced, the ranks agree on what comes next without a message among them."""

import random

import farandole_torch as hvd
import pytest
import torch
from farandole import _core
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
WARM_STEPS, STEADY_STEPS = 4, 12
SMALL, LARGE = 8, 300  # features: of gradients that travel together, and of such as travel alone


def layers(*features):
    torch.manual_seed(5)
    return torch.nn.ModuleList(torch.nn.Linear(each, each) for each in features)


def distributed(parts, **options):
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    return hvd.DistributedOptimizer(optimizer, parts.named_parameters(), **options)


def messages_of(step):
    """How many this rank sends in some steps, after some others."""
    for number in range(WARM_STEPS):
        step(number)
    hvd.barrier()
    before = _core.info()["negotiation_messages"]
    assert before > 0
    for number in range(WARM_STEPS, WARM_STEPS + STEADY_STEPS):
        step(number)
    return _core.info()["negotiation_messages"] - before


def same_everywhere(parts):
    everywhere = hvd.allgather_object([each.detach().numpy().tobytes() for each in parts.parameters()])
    return all(each == everywhere[0] for each in everywhere)


def backward(layer):
    features = layer.in_features
    layer(torch.full((2, features), 1.0 + hvd.rank())).sum().backward()


def unused(**options):
    """Each rank uses another layer, and another one in each step."""
    parts = layers(SMALL, LARGE, SMALL, LARGE)
    optimizer = distributed(parts, **options)

    def step(number):
        optimizer.zero_grad()
        backward(parts[(number + hvd.rank()) % len(parts)])
        optimizer.step()

    assert messages_of(step) == 0
    assert same_everywhere(parts)


def any_order(**options):
    """Gradients are computed in another order on each rank and in each step."""
    parts = layers(*[SMALL, LARGE] * 4)
    optimizer = distributed(parts, **options)
    generator = random.Random(hvd.rank())

    def step(_):
        optimizer.zero_grad()
        for layer in generator.sample(list(parts), len(parts)):
            backward(layer)
        optimizer.step()

    assert messages_of(step) == 0
    assert same_everywhere(parts)


def other_forms():
    any_order(compression=hvd.Compression.bf16)
    any_order(num_groups=3)
    unused(num_groups=3)


def sparse_rows():
    """As many rows as the step and the rank want."""
    parts = torch.nn.ModuleList([torch.nn.Embedding(50, SMALL, sparse=True)])
    hvd.broadcast_parameters(parts.state_dict(), root_rank=0)
    optimizer = distributed(parts)

    def step(number):
        optimizer.zero_grad()
        parts[0](torch.arange(number + 3 * hvd.rank() + 1)).sum().backward()
        optimizer.step()

    assert messages_of(step) == 0
    assert same_everywhere(parts)


def sets_that_overlap():
    """Layers averaged over all ranks, over the first two and over the last two."""
    sets = [hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])]
    common, own = layers(SMALL, LARGE), [layers(SMALL, LARGE), layers(LARGE, SMALL)]
    optimizers = [distributed(common)]
    optimizers += [distributed(parts, process_set=each) for parts, each in zip(own, sets, strict=True)]
    generator = random.Random(hvd.rank())

    def step(_):
        for optimizer in optimizers:
            optimizer.zero_grad()
        everything = [layer for parts in (common, *own) for layer in parts]
        for layer in generator.sample(everything, len(everything)):
            backward(layer)
        for optimizer in optimizers:
            optimizer.step()

    assert messages_of(step) == 0
    assert same_everywhere(common)
    for each in sets:
        hvd.remove_process_set(each)


def what_is_new():
    """The counter would tell."""
    sent = messages_of(lambda number: hvd.allreduce(torch.ones(2), name=f"new.{number}"))
    assert hvd.allreduce(torch.tensor(sent), op=hvd.Sum, name="sent") >= STEADY_STEPS


def test_what_is_new_is_agreed_on_by_messages():
    world(2).run(what_is_new)


@pytest.mark.parametrize("check", [unused, any_order, other_forms, sparse_rows])
def test_no_message_is_sent(check):
    world(2).run(check)


def test_no_message_is_sent_for_process_sets():
    world(3).run(sets_that_overlap)
