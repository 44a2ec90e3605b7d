"""What a rank does with random cases: perform them, compare with the oracle, say what is wrong."""

from __future__ import annotations

import random
import time
import traceback
from typing import Any

import farandole.numpy as fnp
import meanings
import numpy as np
from cases import OPERATIONS, Case, Key, draw_window, order_for
from living import Settings, settings_of, settle

_ENOUGH = 3  # failures, after which a rank stops looking


def perform(keys: list[Key], sets: list[tuple[int, ...]]) -> tuple[int, list[str]]:
    """Perform the windows; how many cases they hold, and a text for each failure."""
    failures: list[str] = []
    count = 0
    for key in keys:
        settle(place_of(key))
        cases = draw_window(key, sets)
        count += len(cases)
        cases = [case for case in cases if fnp.rank() in case.members]
        try:
            failures += perform_window(cases)
        except Exception:  # the world is likely broken, and what follows would fail for that
            failures.append(f"{key}: rank {fnp.rank()} raised\n{traceback.format_exc()}{describe(cases)}")
            break
        if len(failures) >= _ENOUGH:
            break
    return count, failures


def place_of(key: Key) -> list[Settings]:
    """The settings of all ranks; in the mode "mixed" others are alone every few windows."""
    draw = random.Random(repr((key.seed, key.ranks, key.number // 20)))
    return settings_of(key.mode, key.ranks, draw.sample(range(key.ranks), draw.randint(1, max(1, key.ranks - 2))))


def describe(cases: list[Case]) -> str:
    return "".join(f"  {case}\n" for case in cases)


def perform_window(cases: list[Case]) -> list[str]:
    if not cases:
        return []
    rank = fnp.rank()
    draw = random.Random(repr((tuple(cases[0].key), "pauses", rank)))
    pending: list[tuple[Case, list[np.ndarray], Any]] = []
    for case in order_for(cases, rank):
        if draw.random() < 0.02:
            time.sleep(draw.random() * 0.003)
        arrays = [case.data(tensor, case.members.index(rank)) for tensor in range(len(case.shapes))]
        common: dict[str, Any] = {"name": case.name} if case.name else {}
        pending.append((case, arrays, OPERATIONS[case.operation].start(fnp, case, arrays, common)))
    draw.shuffle(pending)
    return [text for case, arrays, result in pending for text in judge(case, arrays, result)]


def judge(case: Case, arrays: list[np.ndarray], result: Any) -> list[str]:
    if not case.blocking:
        result = fnp.synchronize(result)
    member = case.members.index(fnp.rank())
    results = result if isinstance(result, list) else [result]
    found = []
    for tensor in range(len(case.shapes)):
        got = results[tensor]
        if got.dtype != arrays[tensor].dtype:
            found.append(f"{case.key}: a result of dtype {got.dtype}\n{describe([case])}")
            continue
        wrong = meanings.difference(got, OPERATIONS[case.operation].expect(case, tensor, member))
        if case.in_place and got is not arrays[tensor]:
            wrong = wrong or "the result of the form in place is not the array that was given"
        elif not case.in_place and arrays[tensor].tobytes() != case.data(tensor, member).tobytes():
            wrong = wrong or "the input was written to"
        if wrong:
            found.append(f"{case.key}: rank {fnp.rank()}, tensor {tensor}: {wrong}\n{describe([case])}")
    return found
