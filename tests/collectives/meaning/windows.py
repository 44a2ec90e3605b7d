"""Random windows of cases, drawn alike on every rank from (seed, ranks, mode, number).

    window = [case, case, ...]   in flight together; each rank submits and awaits them in an order of its own

Unnamed operations are matched by their order and a blocking one waits, so these keep their order; named asynchronous
ones go anywhere in between. Some windows end with a join: each rank stops after some of the cases, and says so.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

from cases import Case, Key
from living import Members
from meanings import DTYPES
from operations import OPERATIONS

WINDOWS_PER_SETS = 20  # so often the process sets change


class Window(NamedTuple):
    cases: list[Case]
    stops: list[int] | None  # by rank: how many cases it performs before it joins; None: nobody joins


def process_sets(key: Key) -> list[Members]:
    """The process sets beside the world while this window is performed: random, overlapping."""
    draw = random.Random(repr((key.seed, key.ranks, key.mode, "sets", key.number // WINDOWS_PER_SETS)))
    drawn = {tuple(sorted(draw.sample(range(key.ranks), draw.randint(1, key.ranks)))) for _ in range(4)}
    return sorted(members for members in drawn if len(members) < key.ranks)


def draw_window(key: Key) -> Window:
    """The cases of a window, those of all process sets."""
    draw = random.Random(repr(tuple(key)))
    world = tuple(range(key.ranks))
    sets = process_sets(key)
    names = draw.sample(range(12), 12)
    cases = []
    for position in range(draw.choice([1, 1, 2, 3, 6])):
        members = draw.choice(sets) if sets and draw.random() < 0.4 else world
        cases.append(_draw_case(Case(key, position, "", members, members is world), draw, names[position]))
    if draw.random() < 0.8:
        return Window(cases, None)
    stops = [draw.randint(0, len(cases)) for _ in world]
    gone = [frozenset(rank for rank in world if stops[rank] <= case.position) for case in cases]
    return Window([replace(case, joined=joined) for case, joined in zip(cases, gone, strict=True)], stops)


def _draw_case(case: Case, draw: random.Random, name: int) -> Case:
    kinds = list(OPERATIONS)
    case.operation = draw.choices(kinds, [OPERATIONS[kind].weight for kind in kinds])[0]
    case.dtype = draw.choice(list(DTYPES))
    form = draw.random()
    # A name of few is used again and again for something else, a fresh one only once.
    if form < 0.6:
        case.name = f"again.{name}" if form < 0.3 else f"{case.key.mode}.{case.key.number}.{case.position}"
    case.blocking = draw.random() < 0.4
    OPERATIONS[case.operation].draw(case, draw)
    return case


def order_for(cases: list[Case], rank: int) -> list[Case]:
    """The order in which this rank submits."""
    if not cases:
        return []
    draw = random.Random(repr((tuple(cases[0].key), rank)))
    ordered = iter([case for case in cases if case.ordered])
    shuffled = draw.sample(cases, len(cases))
    return [next(ordered) if case.ordered else case for case in shuffled]


def last_to_join(window: Window) -> set[int]:
    """The ranks of which one must be the last to join."""
    assert window.stops is not None
    world = set(range(len(window.stops)))
    most = max(window.stops)
    late = {rank for rank in world if window.stops[rank] == most}
    # A rank has joined before a late one where a case of both could not end without that.
    shared = [case for case in window.cases if late & set(case.members) - case.joined and case.root < 0]
    awaited = {rank for case in shared for rank in case.members if rank in case.joined}
    return late if world - late <= awaited else world


def keys_that_hold(cases: float, seed: int, ranks: int, mode: str, only: str = "") -> list[Key]:
    """As many windows as hold so many cases; with `only`, which is "ranks-mode-number", that one or none."""
    if only:
        wanted = only.split("-")
        return [Key(seed, ranks, mode, int(wanted[2]))] if wanted[:2] == [str(ranks), mode] else []
    keys: list[Key] = []
    count = 0
    while count < cases:
        keys.append(Key(seed, ranks, mode, len(keys)))
        count += len(draw_window(keys[-1]).cases)
    return keys
