"""A rank of the suite of random windows: performs them, compares with the oracle, reports what is wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import farandole
import farandole.numpy as fnp
import living
import meanings
import numpy as np
from cases import Case, Key
from living import Settings, change_sets, settings_of, settle
from operations import OPERATIONS
from windows import Window, draw_window, last_to_join, order_for, process_sets

_ENOUGH = 3  # failures, after which a rank stops looking


def perform(
    keys: list[Key],
    draw: Callable[[Key], Window] = draw_window,
    perform_one: Callable[[Window], list[str]] | None = None,
) -> tuple[int, list[str]]:
    """Perform the windows; how many cases they hold, and a text for each failure."""
    failures: list[str] = []
    count = 0
    for key in keys:
        window = draw(key)
        count += len(window.cases)
        try:
            settle(place_of(key))
            change_sets(process_sets(key))
            failures += (perform_one or perform_window)(window)
        except Exception as error:  # the world is likely broken: the others need not go on
            living.sets.clear()
            raise AssertionError(f"{key}: rank {living.place()}: {error}\n{describe(window.cases)}") from error
        if len(failures) >= _ENOUGH:
            break
    return count, failures


def place_of(key: Key) -> list[Settings]:
    """The settings of all ranks; in the mode "mixed" others are alone every few windows."""
    draw = random.Random(repr((key.seed, key.ranks, key.number // 30)))
    return settings_of(key.mode, key.ranks, draw.sample(range(key.ranks), draw.randint(1, max(1, key.ranks - 2))))


def describe(cases: list[Case]) -> str:
    return "".join(f"  {case}\n" for case in cases)


def perform_window(window: Window) -> list[str]:
    rank = fnp.rank()
    mine = [case for case in window.cases if rank in case.members and rank not in case.joined]
    # A rank that stops early waits for its last case before it joins, so the others submit that case before they wait.
    ordered = mine if window.stops is not None else order_for(mine, rank)
    failures = perform_cases(ordered) if mine else []
    return failures + (join_and_judge(window) if window.stops is not None else [])


def join_and_judge(window: Window) -> list[str]:
    """Join at a window's end: all ranks get the same one of those that can be last."""
    last = fnp.join()
    if {last} == set(fnp.allgather(np.array([last])).tolist()) and last in last_to_join(window):
        return []
    return [f"{window.cases[0].key}: rank {fnp.rank()}: join() gave {last}\n{describe(window.cases)}"]


def perform_cases(cases: list[Case]) -> list[str]:
    draw = random.Random(repr((tuple(cases[0].key), "pauses", fnp.rank())))
    pending: list[tuple[Case, list[np.ndarray], Any]] = []
    for case in cases:
        if draw.random() < 0.02:
            time.sleep(draw.random() * 0.003)
        arrays = [case.data(tensor, case.members.index(fnp.rank())) for tensor in range(len(case.shapes))]
        words: dict[str, Any] = {"name": case.name} if case.name else {}
        if not case.whole:
            words["process_set"] = living.sets[case.members]
        pending.append((case, arrays, start(case, arrays, words)))
    draw.shuffle(pending)
    return [text for case, arrays, result in pending for text in judge(case, arrays, result)]


def start(case: Case, arrays: list[np.ndarray], words: dict[str, Any]) -> Any:
    """The result of the call, or the error that it raises where it may."""
    try:
        return OPERATIONS[case.operation].start(fnp, case, arrays, words)
    except farandole.FarandoleError as error:
        if has_no_root(case):
            return error
        raise


def has_no_root(case: Case) -> bool:
    return case.root in case.joined


def judge(case: Case, arrays: list[np.ndarray], result: Any) -> list[str]:
    try:
        if not case.blocking:
            result = fnp.synchronize(result)
    except farandole.FarandoleError as error:
        if not has_no_root(case):
            raise
        result = error
    if has_no_root(case):
        return [] if f"rank {case.root}" in str(result) else [f"{case.key}: {result!r}\n{describe([case])}"]
    results = result if isinstance(result, list) else [result]
    found = []
    for tensor, array in enumerate(arrays):
        if wrong := compare(case, tensor, array, results[tensor]):
            found.append(f"{case.key}: rank {fnp.rank()}, tensor {tensor}: {wrong}\n{describe([case])}")
    return found


def compare(case: Case, tensor: int, array: np.ndarray, got: Any) -> str:
    """The fault of one result, or ""."""
    member = case.members.index(fnp.rank())
    if isinstance(got, tuple):
        got, received = got
        if np.asarray(received).tolist() != [splits[member] for splits in sent_splits(case)]:
            return f"the rows received from each member are said to be {received}"
    if got.dtype != array.dtype:
        return f"the dtype is {got.dtype}"
    if wrong := meanings.difference(got, OPERATIONS[case.operation].expect(case, tensor, member)):
        return wrong
    if case.in_place and got is not array:
        return "the result of the form in place is not the array that was given"
    if not case.in_place and array.tobytes() != case.data(tensor, member).tobytes():
        return "the input was written to"
    return ""


def sent_splits(case: Case) -> list[list[int]]:
    """The splits of all members; those that have joined send nothing."""
    return [
        [0] * len(case.members) if member in case.joined else splits
        for member, splits in zip(case.members, case.splits, strict=True)
    ]
