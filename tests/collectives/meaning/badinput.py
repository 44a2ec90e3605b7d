"""Bad input as data: what ranks call, what each of them must be told. No test functions here, and no judging."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from meanings import DTYPES


@dataclass(frozen=True)
class Call:
    """One operation on tensors of ones."""

    kind: str = "allreduce"
    dtype: str = "float32"
    shape: tuple[int, ...] = (4,)
    more: tuple[tuple[str, tuple[int, ...]], ...] = ()  # further tensors of a grouped operation
    op: str = "Sum"
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0

    def perform(self, fnp: Any, name: str | None, blocking: bool, process_set: Any = None) -> None:
        """Perform it and wait for it."""
        if self.kind == "barrier":
            fnp.barrier(process_set=process_set)
            return
        specs = [(self.dtype, self.shape), *self.more]
        tensors: Any = [np.ones(shape, DTYPES[dtype]) for dtype, shape in specs]
        if not self.kind.startswith("grouped_"):
            tensors = tensors[0]
        words: dict[str, Any] = {"name": name, "process_set": process_set}
        if self.kind.endswith(("allreduce", "reducescatter")):
            scales = {"prescale_factor": self.prescale, "postscale_factor": self.postscale}
            words.update(op=getattr(fnp, self.op), **scales)
        elif self.kind == "broadcast":
            words["root_rank"] = self.root
        if blocking:
            getattr(fnp, self.kind)(tensors, **words)
        else:
            fnp.synchronize(getattr(fnp, f"{self.kind}_async")(tensors, **words))


@dataclass(frozen=True)
class Difference:
    """Two calls that do not fit, and the value of each that the error must show."""

    left: Call
    right: Call
    words: tuple[str, str]

    @property
    def named(self) -> bool:
        """Returns whether both can have a name."""
        return "barrier" not in (self.left.kind, self.right.kind)


@dataclass(frozen=True)
class Mismatch:
    """A difference as it happens among `ranks`: rank `odd` makes the right call, all others the left one."""

    difference: Difference
    ranks: tuple[int, ...]
    odd: int
    name: str | None
    blocking: bool

    def call(self, rank: int) -> Call:
        return self.difference.right if rank == self.odd else self.difference.left

    def words(self) -> list[str]:
        """The parts that every rank's error must have: the first two ranks that differ, with both values."""
        left, right = self.difference.words
        lowest = self.ranks[0]
        first, other = (right, left) if self.odd == lowest else (left, right)
        return [
            f"rank {lowest} has {first}",
            f"rank {self.ranks[1] if self.odd == lowest else self.odd} has {other}",
            f"'{self.name}'" if self.name else "unnamed",
        ]


_BASE = Call()
_GATHER = Call("allgather", shape=(2, 3))
_CAST = Call("broadcast")
_EXCHANGE = Call("alltoall", shape=(12, 3))  # rows for every number of ranks
_SCATTER = Call("reducescatter", shape=(12, 3))
_GROUP = Call("grouped_allreduce", more=(("float32", (2,)), ("int32", (3,))))
_GATHERS = Call("grouped_allgather", shape=(1, 2), more=(("float32", (2, 2)),))


def _with(base: Call, field: str, pairs: list[tuple[Any, Any]], show: Callable[[Any], str] = str) -> list[Difference]:
    """Differences in one field of a call."""
    calls = [(replace(base, **{field: a}), replace(base, **{field: b}), (show(a), show(b))) for a, b in pairs]
    return [Difference(*each) for each in calls]


def _number(value: float) -> str:
    return f"{value:g}"


_DTYPE_PAIRS = [("float32", "float64"), ("float16", "bfloat16"), ("int8", "uint8"), ("int32", "float32")]
_MORE_DTYPES = [("int64", "int32"), ("bool", "uint8"), ("uint16", "int16")]
_SHAPES = [((2,), (3,)), ((2, 3), (3, 2)), ((), (1,)), ((0,), (4,)), ((4,), (4, 1)), ((70000,), (70001,))]
_ROWS = [((2, 3), (2, 4)), ((1, 2), (1, 2, 1)), ((5,), (5, 1))]
_EXCHANGED = [((12, 3), (12, 4)), ((12, 2), (12, 2, 1)), ((12,), (24, 1))]
_SCATTERED = [((2, 3), (2, 4)), ((5,), (6,)), ((0, 2), (1, 2)), ((7, 1), (7,))]

DIFFERENCES = [
    *_with(_BASE, "dtype", _DTYPE_PAIRS + _MORE_DTYPES),
    *_with(_CAST, "dtype", _DTYPE_PAIRS),
    *_with(_GATHER, "dtype", _DTYPE_PAIRS),
    *_with(_BASE, "shape", _SHAPES),
    *_with(_CAST, "shape", _SHAPES),
    *_with(_EXCHANGE, "dtype", _DTYPE_PAIRS),
    *_with(_SCATTER, "dtype", _DTYPE_PAIRS),
    *_with(_SCATTER, "shape", _SCATTERED),
    *[
        replace(each, words=(str(each.left.shape[1:]), str(each.right.shape[1:])))
        for each in _with(_GATHER, "shape", _ROWS) + _with(_EXCHANGE, "shape", _EXCHANGED)
    ],
    *_with(_SCATTER, "op", [("Sum", "Average"), ("Min", "Product")], str.lower),
    *_with(_SCATTER, "prescale", [(1.0, 0.5)], _number),
    *_with(_SCATTER, "kind", [("reducescatter", "alltoall"), ("alltoall", "broadcast")]),
    *_with(_SCATTER, "kind", [("reducescatter", "allreduce"), ("allgather", "alltoall")]),
    *_with(_BASE, "op", [("Sum", "Average"), ("Min", "Max"), ("Sum", "Product"), ("Sum", "Adasum")], str.lower),
    *_with(_CAST, "root", [(0, 1)]),
    *_with(_BASE, "prescale", [(1.0, 0.5), (2.0, -2.0)], _number),
    *_with(_BASE, "postscale", [(1.0, 0.25), (3.0, 3.5)], _number),
    *_with(_BASE, "kind", [("allreduce", "allgather"), ("allreduce", "broadcast"), ("allgather", "broadcast")]),
    *_with(_BASE, "kind", [("allreduce", "barrier"), ("barrier", "allgather")]),
    Difference(_GROUP, replace(_GROUP, more=_GROUP.more[:1]), ("3", "2")),
    Difference(_GROUP, replace(_GROUP, more=(("float32", (2,)), ("int64", (3,)))), ("int32", "int64")),
    Difference(_GROUP, replace(_GROUP, more=(("float32", (5,)), ("int32", (3,)))), ("(2,)", "(5,)")),
    Difference(_GROUP, _BASE, ("3", "1")),
    Difference(_GATHERS, replace(_GATHERS, more=()), ("2", "1")),
    Difference(_GATHERS, replace(_GATHERS, more=(("float32", (2, 5)),)), ("(2,)", "(5,)")),
    Difference(_GROUP, replace(_GATHERS, shape=(4,)), ("allreduce", "allgather")),
]


def mismatches(ranks: Sequence[int]) -> list[Mismatch]:
    """Each difference, named and unnamed, blocking and not; the odd rank is drawn."""
    draw = random.Random(len(ranks))
    found = []
    for number, (difference, named, blocking) in enumerate(
        itertools.product(DIFFERENCES, (True, False), (True, False))
    ):
        if (named and not difference.named) or (not blocking and not difference.named):
            continue
        name = f"mismatch.{number}" if named else None
        found.append(Mismatch(difference, tuple(ranks), draw.choice(ranks), name, blocking))
    return found
