"""The table of operations: how each is drawn, called and judged. A new collective is a row."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import meanings
import numpy as np
from cases import Case
from meanings import COMPLEX, FLOATS, Expected

REDUCTIONS = ("Sum", "Average", "Min", "Max", "Product")
_SCALES = (0.5, 2.0, -1.5, 0.25, 3.0)  # exact in binary, so that integers have one right answer
_LARGEST = 400_000  # elements: several rounds of the data plane's slots
_ROWS = (0, 0, 1, 2, 5, 64)

Words = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    draw: Callable[[Case, random.Random], None]
    start: Callable[[ModuleType, Case, list[Any], Words], Any]  # face, case, arrays, keywords -> handle or result
    expect: Callable[[Case, int, int], Expected]  # case, tensor, member -> what that member gets
    weight: int = 1


def _pick(face: ModuleType, case: Case, stem: str) -> Any:
    """The function of the face that has the case's form."""
    ending = ("" if case.blocking else "_async") + ("_" if case.in_place else "")
    return getattr(face, ("grouped_" if case.grouped else "") + stem + ending)


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
    if case.dtype in COMPLEX and case.op not in ("Sum", "Average"):
        case.op = "Average"
    if draw.random() < 0.3:
        case.prescale = draw.choice(_SCALES)
    if draw.random() < 0.3:
        case.postscale = draw.choice(_SCALES)


def _draw_allreduce(case: Case, draw: random.Random) -> None:
    case.grouped = draw.random() < 0.25
    case.shapes = [_draw_shape(draw) for _ in range(draw.randint(1, 5) if case.grouped else 1)]
    case.in_place = draw.random() < 0.4
    _draw_reduction(case, draw)
    if case.dtype in FLOATS and draw.random() < 0.15:
        case.op = "Adasum"


def _start_allreduce(face: ModuleType, case: Case, arrays: list[Any], words: Words) -> Any:
    scales = {"prescale_factor": case.prescale, "postscale_factor": case.postscale}
    return _pick(face, case, "allreduce")(_first(case, arrays), op=getattr(face, case.op), **scales, **words)


def _expect_allreduce(case: Case, tensor: int, member: int) -> Expected:
    if case.op == "Adasum":
        return meanings.adasum(
            [meanings.prescaled(each, case.prescale) for each in case.inputs(tensor)], case.postscale
        )
    return meanings.reduction(case.op, case.inputs(tensor), len(case.members), case.prescale, case.postscale)


def _draw_rows(case: Case, draw: random.Random, count: int) -> None:
    case.shapes = [(0, *_draw_shape(draw)[:1]) if draw.random() < 0.6 else (0,) for _ in range(count)]
    alike = draw.random() < 0.3
    case.rows = [
        [draw.choice(_ROWS)] * len(case.members) if alike else [draw.choice(_ROWS) for _ in case.members]
        for _ in range(count)
    ]


def _limit_sizes(case: Case) -> None:
    """Many rows are short ones, so that no tensor takes seconds to draw."""
    for tensor, (shape, rows) in enumerate(zip(case.shapes, case.rows, strict=True)):
        case.shapes[tensor] = (0, *(min(width, _LARGEST // max(1, *rows)) for width in shape[1:]))


def _draw_allgather(case: Case, draw: random.Random) -> None:
    case.grouped = draw.random() < 0.25
    _draw_rows(case, draw, draw.randint(1, 4) if case.grouped else 1)
    _limit_sizes(case)


def _start_allgather(face: ModuleType, case: Case, arrays: list[Any], words: Words) -> Any:
    return _pick(face, case, "allgather")(_first(case, arrays), **words)


def _expect_allgather(case: Case, tensor: int, member: int) -> Expected:
    return Expected(np.concatenate(case.inputs(tensor)))


def _draw_broadcast(case: Case, draw: random.Random) -> None:
    case.shapes = [_draw_shape(draw)]
    case.root = draw.choice(case.members)
    case.in_place = draw.random() < 0.4


def _start_broadcast(face: ModuleType, case: Case, arrays: list[Any], words: Words) -> Any:
    return _pick(face, case, "broadcast")(arrays[0], case.root, **words)


def _expect_broadcast(case: Case, tensor: int, member: int) -> Expected:
    return Expected(case.data(tensor, case.members.index(case.root)))


def _draw_barrier(case: Case, draw: random.Random) -> None:
    case.name, case.blocking = None, True


def _start_barrier(face: ModuleType, case: Case, arrays: list[Any], words: Words) -> Any:
    face.barrier(**words)
    return []


def _draw_alltoall(case: Case, draw: random.Random) -> None:
    _draw_rows(case, draw, 1)
    count = len(case.members)
    if draw.random() < 0.3:  # equal parts, which need no splits
        case.rows = [[count * draw.choice(_ROWS)] * count]
    else:
        case.splits = [[draw.choice(_ROWS) for _ in case.members] for _ in case.members]
        case.rows = [[sum(splits) for splits in case.splits]]
    _limit_sizes(case)


def _start_alltoall(face: ModuleType, case: Case, arrays: list[Any], words: Words) -> Any:
    if case.splits:
        words["splits"] = case.splits_of(case.members.index(face.rank()))
    return _pick(face, case, "alltoall")(arrays[0], **words)


def _expect_alltoall(case: Case, tensor: int, member: int) -> Expected:
    parts = []
    for sender in range(len(case.members)):
        array = case.data(tensor, sender)
        equal = [len(array) // len(case.members)] * len(case.members)  # also the nothing of those that have joined
        splits = case.splits[sender] if case.splits and len(array) else equal
        start = sum(splits[:member])
        parts.append(array[start : start + splits[member]])
    return Expected(np.concatenate(parts))


def _draw_reducescatter(case: Case, draw: random.Random) -> None:
    case.grouped = draw.random() < 0.25
    for _ in range(draw.randint(1, 4) if case.grouped else 1):
        shape = _draw_shape(draw)
        case.shapes.append(shape if shape else (draw.randint(0, 9),))
    _draw_reduction(case, draw)


def _start_reducescatter(face: ModuleType, case: Case, arrays: list[Any], words: Words) -> Any:
    scales = {"prescale_factor": case.prescale, "postscale_factor": case.postscale}
    return _pick(face, case, "reducescatter")(_first(case, arrays), op=getattr(face, case.op), **scales, **words)


def _expect_reducescatter(case: Case, tensor: int, member: int) -> Expected:
    """As many rows for each, one more for the first ones."""
    whole = _expect_allreduce(case, tensor, member)
    each, more = divmod(len(whole.values), len(case.members))
    start = each * member + min(member, more)
    mine = slice(start, start + each + (member < more))
    return Expected(whole.values[mine], None if whole.slack is None else whole.slack[mine])


OPERATIONS = {
    "allreduce": Operation(_draw_allreduce, _start_allreduce, _expect_allreduce, weight=8),
    "allgather": Operation(_draw_allgather, _start_allgather, _expect_allgather, weight=5),
    "broadcast": Operation(_draw_broadcast, _start_broadcast, _expect_broadcast, weight=4),
    "barrier": Operation(_draw_barrier, _start_barrier, lambda case, tensor, member: Expected(np.empty(0))),
    "alltoall": Operation(_draw_alltoall, _start_alltoall, _expect_alltoall, weight=4),
    "reducescatter": Operation(_draw_reducescatter, _start_reducescatter, _expect_reducescatter, weight=4),
}
