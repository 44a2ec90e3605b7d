"""Random cases: what all ranks call, drawn alike on each of them from (seed, ranks, mode, number).

    window = [case, case, ...]   in flight together; each rank submits and awaits them in an order of its own

Unnamed operations are matched by their order and a blocking one waits, so these keep their order; named asynchronous
ones go anywhere in between.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import meanings
import numpy as np
from meanings import DTYPES, FLOATS, Expected

REDUCTIONS = ("Sum", "Average", "Min", "Max", "Product")
_SCALES = (0.5, 2.0, -1.5, 0.25, 3.0)  # exact in binary, so that integers have one right answer
_LARGEST = 400_000  # elements: several rounds of the data plane's slots
_ROWS = (0, 0, 1, 2, 5, 64)


class Key(NamedTuple):
    """Names a window for all time: what a failure prints, and what replays it."""

    seed: int
    ranks: int
    mode: str
    number: int

    def __str__(self) -> str:
        return f"FARANDOLE_SEED={self.seed} FARANDOLE_CASE={self.ranks}-{self.mode}-{self.number}"


@dataclass
class Case:
    """One call, as all members make it."""

    key: Key
    position: int  # within the window
    operation: str
    members: tuple[int, ...]  # global ranks, in the order of the set
    whole: bool  # the members are the world, and no process set is given
    dtype: str = "float32"
    shapes: list[tuple[int, ...]] = field(default_factory=list)  # one per tensor, by member where rows differ
    rows: list[list[int]] = field(default_factory=list)  # per tensor: the first dimension of each member
    splits: list[list[int]] = field(default_factory=list)  # alltoall: per member the rows for each member
    grouped: bool = False
    name: str | None = None
    blocking: bool = False
    in_place: bool = False
    op: str = "Sum"
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0  # a global rank

    @property
    def ordered(self) -> bool:
        return self.blocking or self.name is None

    def shape(self, tensor: int, member: int) -> tuple[int, ...]:
        shape = self.shapes[tensor]
        return (self.rows[tensor][member], *shape[1:]) if self.rows else shape

    def data(self, tensor: int, member: int) -> np.ndarray:
        """What member number `member` hands in."""
        draw = np.random.default_rng([*map(abs, _numbers(self.key)), self.position, tensor, member])
        shape, kind = self.shape(tensor, member), DTYPES[self.dtype]
        if self.dtype == "bool":
            return np.asarray(draw.integers(0, 2, shape), dtype=kind)
        if self.dtype in FLOATS:
            return np.asarray(_float_data(self, draw, shape), dtype=kind)
        limits = np.iinfo(kind)
        if self.prescale == self.postscale == 1.0 and self.op != "Average":
            return np.asarray(draw.integers(limits.min, limits.max, shape, kind, endpoint=True))
        low, high = max(limits.min, -1000), min(limits.max, 1000)
        return np.asarray(draw.integers(low, high, shape, kind, endpoint=True))

    def inputs(self, tensor: int) -> list[np.ndarray]:
        return [self.data(tensor, member) for member in range(len(self.members))]


def _numbers(key: Key) -> tuple[int, ...]:
    return key.seed, key.ranks, len(key.mode), key.number


def _float_data(case: Case, draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if case.op == "Product":
        return draw.uniform(0.5, 1.5, shape) * draw.choice([-1.0, 1.0], shape)
    values = draw.standard_normal(shape) * draw.choice([1e-3, 1.0, 4.0], shape)
    if case.op in ("Min", "Max") or case.operation not in REDUCING:
        special = draw.random(shape) < 0.02
        values = np.where(special, draw.choice([np.nan, np.inf, -np.inf, -0.0], shape), values)
    return values


# ---- operations: how each is drawn, called and judged. A new collective is a row.


@dataclass(frozen=True)
class Operation:
    draw: Callable[[Case, random.Random], None]
    start: Callable[
        [Any, Case, list[Any], dict[str, Any]], Any
    ]  # numpy face, case, arrays, keywords -> handle or result
    expect: Callable[[Case, int, int], Expected]  # case, tensor, member -> what that member gets
    weight: int = 1


def _pick(fnp: Any, case: Case, stem: str, in_place: bool = False) -> Any:
    """The function of the face that has the case's form."""
    ending = ("" if case.blocking else "_async") + ("_" if in_place else "")
    return getattr(fnp, ("grouped_" if case.grouped else "") + stem + ending)


def _first(case: Case, arrays: list[Any]) -> Any:
    return arrays if case.grouped else arrays[0]


def _draw_shape(draw: random.Random) -> tuple[int, ...]:
    count = draw.choice([0, 1, 2, 3, 7, 16, draw.randint(1, 300), draw.randint(1, 5000)])
    if draw.random() < 0.03:
        count = draw.randint(5000, _LARGEST)
    kind = draw.randrange(5)
    if kind == 0:
        return ()
    if kind == 1:
        width = draw.randint(1, 9)
        return (max(1, count // width), width)
    if kind == 2:
        return (draw.choice([1, 3]), count // 3, 1)
    return (count,)


def _draw_reduction(case: Case, draw: random.Random) -> None:
    case.op = draw.choice(REDUCTIONS)
    if case.dtype == "bool":
        case.op = "Max" if case.op == "Average" else case.op
        return
    if draw.random() < 0.3:
        case.prescale = draw.choice(_SCALES)
    if draw.random() < 0.3:
        case.postscale = draw.choice(_SCALES)


def _draw_allreduce(case: Case, draw: random.Random) -> None:
    case.grouped = draw.random() < 0.25
    case.shapes = [_draw_shape(draw) for _ in range(draw.randint(1, 5) if case.grouped else 1)]
    case.in_place = draw.random() < 0.4
    _draw_reduction(case, draw)


def _start_allreduce(fnp: Any, case: Case, arrays: list[Any], common: dict[str, Any]) -> Any:
    function = _pick(fnp, case, "allreduce", case.in_place)
    scales = {"prescale_factor": case.prescale, "postscale_factor": case.postscale}
    return function(_first(case, arrays), op=getattr(fnp, case.op), **scales, **common)


def _expect_allreduce(case: Case, tensor: int, member: int) -> Expected:
    return meanings.reduction(case.op, case.inputs(tensor), len(case.members), case.prescale, case.postscale)


def _draw_allgather(case: Case, draw: random.Random) -> None:
    case.grouped = draw.random() < 0.25
    count = draw.randint(1, 4) if case.grouped else 1
    case.shapes = [(0, *_draw_shape(draw)[:1]) if draw.random() < 0.6 else (0,) for _ in range(count)]
    alike = draw.random() < 0.3
    case.rows = [
        [draw.choice(_ROWS)] * len(case.members) if alike else [draw.choice(_ROWS) for _ in case.members]
        for _ in range(count)
    ]


def _start_allgather(fnp: Any, case: Case, arrays: list[Any], common: dict[str, Any]) -> Any:
    return _pick(fnp, case, "allgather")(_first(case, arrays), **common)


def _expect_allgather(case: Case, tensor: int, member: int) -> Expected:
    return Expected(np.concatenate(case.inputs(tensor)))


def _draw_broadcast(case: Case, draw: random.Random) -> None:
    case.shapes = [_draw_shape(draw)]
    case.root = draw.choice(case.members)
    case.in_place = draw.random() < 0.4


def _start_broadcast(fnp: Any, case: Case, arrays: list[Any], common: dict[str, Any]) -> Any:
    return _pick(fnp, case, "broadcast", case.in_place)(arrays[0], case.root, **common)


def _expect_broadcast(case: Case, tensor: int, member: int) -> Expected:
    return Expected(case.data(tensor, case.members.index(case.root)))


def _draw_barrier(case: Case, draw: random.Random) -> None:
    case.name, case.blocking = None, True


def _start_barrier(fnp: Any, case: Case, arrays: list[Any], common: dict[str, Any]) -> Any:
    fnp.barrier(**{name: value for name, value in common.items() if name == "process_set"})
    return []


OPERATIONS = {
    "allreduce": Operation(_draw_allreduce, _start_allreduce, _expect_allreduce, weight=8),
    "allgather": Operation(_draw_allgather, _start_allgather, _expect_allgather, weight=5),
    "broadcast": Operation(_draw_broadcast, _start_broadcast, _expect_broadcast, weight=4),
    "barrier": Operation(_draw_barrier, _start_barrier, lambda case, tensor, member: Expected(np.empty(0))),
}
REDUCING = ("allreduce", "reducescatter")


# ---- windows


def draw_window(key: Key, sets: list[tuple[int, ...]]) -> list[Case]:
    """The cases of a window; `sets` are the members of the process sets there are, the world first."""
    draw = random.Random(repr(tuple(key)))
    kinds = list(OPERATIONS)
    weights = [OPERATIONS[kind].weight for kind in kinds]
    names = draw.sample(range(12), 12)
    cases = []
    for position in range(draw.choice([1, 1, 2, 3, 6])):
        members = draw.choice(sets)
        case = Case(key, position, draw.choices(kinds, weights)[0], members, members is sets[0])
        case.dtype = draw.choice(list(DTYPES))
        form = draw.random()
        # A name of few is used again and again for something else, a fresh one only once.
        if form < 0.6:
            case.name = f"again.{names[position]}" if form < 0.3 else f"{key.mode}.{key.number}.{position}"
        case.blocking = draw.random() < 0.4
        OPERATIONS[case.operation].draw(case, draw)
        cases.append(case)
    return cases


def order_for(cases: list[Case], rank: int) -> list[Case]:
    """The order in which this rank submits: the ordered ones as they stand, the others anywhere between."""
    draw = random.Random(repr((tuple(cases[0].key), rank)))
    ordered = iter([case for case in cases if case.ordered])
    shuffled = draw.sample(cases, len(cases))
    return [next(ordered) if case.ordered else case for case in shuffled]


def element_count(case: Case) -> int:
    """How much data the case has, for reports."""
    return sum(math.prod(case.shape(tensor, 0)) for tensor in range(len(case.shapes)))
