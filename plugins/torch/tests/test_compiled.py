"""Collectives inside functions that torch.compile compiles: the results of Python, and no word from Dynamo."""

import logging
import warnings

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 13, "where hiding functions from Dynamo was checked")]


def in_place(x):
    total = x.detach() * 2
    hvd.allreduce_(total, op=hvd.Sum)
    return x * total


def with_numbers(x):
    hvd.barrier()
    return x * hvd.size() + hvd.rank() + hvd.broadcast_object(hvd.rank(), hvd.size() - 1)


FUNCTIONS = {
    "allreduce": lambda x: hvd.allreduce(x * 2, op=hvd.Sum) * (hvd.rank() + 1),
    "allreduce_async": lambda x: hvd.synchronize(hvd.allreduce_async(x * 2, name="x")) * (hvd.rank() + 1),
    "wait": lambda x: hvd.allreduce_async(x * 2).wait() + 1,
    "grouped_allreduce": lambda x: sum(hvd.grouped_allreduce([x * 2, x + 1])),
    "allgather": lambda x: hvd.allgather(x * 2) * 3,
    "broadcast": lambda x: hvd.broadcast(x * 2, hvd.size() - 1) * 3,
    "alltoall": lambda x: hvd.alltoall(x * 2) * 3,
    "reducescatter": lambda x: hvd.reducescatter(x * 2, op=hvd.Sum) * 3,
    "in_place": in_place,
    "with_numbers": with_numbers,
}


def result_and_gradient(function, rows):
    x = (torch.arange(3.0 * rows).reshape(rows, 3) + hvd.rank()).requires_grad_()
    result = function(x)
    result.square().sum().backward()
    return result.detach(), x.grad


class Kept(logging.Handler):
    def __init__(self, messages):
        super().__init__()
        self._messages = messages

    def emit(self, record):
        self._messages.add(record.getMessage())


def compiled():
    """At several sizes: from the second on, Dynamo compiles for all."""
    messages = set()
    handler = Kept(messages)
    loggers = [logging.getLogger("torch"), logging.getLogger("torch._dynamo")]
    for each in loggers:
        each.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            for name, function in FUNCTIONS.items():
                faster = torch.compile(function, backend="eager")
                for rows in (2, 4, 6):
                    for got, want in zip(
                        result_and_gradient(faster, rows), result_and_gradient(function, rows), strict=True
                    ):
                        assert torch.equal(got, want), (name, rows)
    finally:
        for each in loggers:
            each.removeHandler(handler)
    assert not messages, messages
    assert not warned, [str(each.message) for each in warned]


def test_compiled_functions():
    world(2).run(compiled)
