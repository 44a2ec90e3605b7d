"""Times one collective at one size, the same way on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import farandole.numpy as fnp

BATCH_S = 0.0005
MOST_REPETITIONS = 100
MOST_BATCHES = 2000

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Row:
    """How long one operation takes: a batch's time on its slowest rank, over its operations."""

    size_bytes: int
    min_s: float
    median_s: float
    bus_factor: float  # bytes that cross the bus of a rank each way, in sizes

    @property
    def algorithm_gb_s(self) -> float:
        """The size over its time."""
        return self.size_bytes / self.min_s / 1e9

    @property
    def bus_gb_s(self) -> float:
        """The bytes that a rank must send or receive at least, over the time."""
        return self.algorithm_gb_s * self.bus_factor

    def as_json(self) -> dict[str, float]:
        """The row of a file."""
        return {
            "bytes": self.size_bytes,
            "min_us": self.min_s * 1e6,
            "median_us": self.median_s * 1e6,
            "algorithm_gb_s": self.algorithm_gb_s,
            "bus_gb_s": self.bus_gb_s,
        }


@dataclass(frozen=True)
class Operation:
    """One collective: what a rank puts in for a size, the call, and what must cross its bus at least."""

    elements: Callable[[int, int], int]  # (elements of the size, ranks) -> elements that a rank puts in
    call: Callable[[Array], object]
    bus_factor: Callable[[int], float]  # ranks -> sizes
    what_size_is: str


OPERATIONS = {
    "allreduce": Operation(
        elements=lambda count, ranks: count,
        call=lambda array: fnp.allreduce_(array, op=fnp.Sum, name="benchmark"),
        bus_factor=lambda ranks: 2 * (ranks - 1) / ranks,
        what_size_is="bytes of the array on each rank, which is summed in place",
    ),
    "allgather": Operation(
        elements=lambda count, ranks: -(-count // ranks),
        call=lambda array: fnp.allgather(array, name="benchmark"),
        bus_factor=lambda ranks: (ranks - 1) / ranks,
        what_size_is="bytes of the result, to which each rank adds an equal part",
    ),
    "broadcast": Operation(
        elements=lambda count, ranks: count,
        call=lambda array: fnp.broadcast_(array, root_rank=0, name="benchmark"),
        bus_factor=lambda ranks: 1.0 if ranks > 1 else 0.0,
        what_size_is="bytes of the array that rank 0 sends to all",
    ),
}


def measure(name: str, size_bytes: int, seconds: float) -> Row:
    """Time `name` for about `seconds`. Every rank calls it and gets the same row."""
    operation = OPERATIONS[name]
    array = np.zeros(operation.elements(size_bytes // 4, fnp.size()), np.float32)
    operation.call(array)
    once = min(_timed(operation, array, 1) for _ in range(3))
    repetitions = max(1, min(MOST_REPETITIONS, int(BATCH_S / once)))
    batches = max(3, min(MOST_BATCHES, int(seconds / (once * repetitions))))
    repetitions, batches = fnp.broadcast_object((repetitions, batches))
    mine = np.zeros(batches)
    for batch in range(batches):
        operation.call(array)  # brings the ranks together
        mine[batch] = _timed(operation, array, repetitions)
    slowest = fnp.allreduce(mine, op=fnp.Max)
    return Row(size_bytes, float(slowest.min()), float(np.median(slowest)), operation.bus_factor(fnp.size()))


def _timed(operation: Operation, array: Array, repetitions: int) -> float:
    """Seconds per call."""
    begin = time.perf_counter()
    for _ in range(repetitions):
        operation.call(array)
    return (time.perf_counter() - begin) / repetitions
