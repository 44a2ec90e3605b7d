"""Measures the difference between the clocks of hosts, from the beginnings and ends of collectives.

A rank leaves an allgather after every rank has entered it. By the clocks of two ranks, of which one is `offset` ahead,

    entered - left of the other <= offset <= left - entered of the other

in each round; the middle of the narrowest interval is off by half its width at most. (The idea is that of Cristian,
"Probabilistic clock synchronization", 1989, with a collective instead of a question and its answer.)
"""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Sequence

from farandole._api.ops import Kind
from farandole._runtime.native import core

_ROUNDS = 16
_INT64 = 5  # see DType

Round = tuple[int, int]  # when a rank entered and left an allgather, in nanoseconds of its monotonic clock


def offset_ns(rounds: Sequence[Round], of_rank_0: Sequence[Round]) -> int:
    """Nanoseconds by which this rank's clock is ahead of rank 0's."""
    pairs = list(zip(rounds, of_rank_0, strict=True))
    least = max(entered - left_0 for (entered, _), (_, left_0) in pairs)
    most = min(left - entered_0 for (_, left), (entered_0, _) in pairs)
    return (least + most) // 2


def measure_offset_ns() -> int:
    """The same, measured now. Collective."""
    rounds: list[Round] = []
    for number in range(_ROUNDS):
        entered = time.monotonic_ns()
        allgather([entered], f"farandole.clock.{number}")
        rounds.append((entered, time.monotonic_ns()))
    everybodys = allgather([value for each in rounds for value in each], "farandole.clocks")
    of_rank_0 = everybodys[: 2 * _ROUNDS]
    return offset_ns(rounds, list(zip(of_rank_0[::2], of_rank_0[1::2], strict=True)))


def allgather(values: Sequence[int], name: str, process_set: int = 0) -> list[int]:
    """The numbers of all ranks, of the set with this number, one rank's after the other's."""
    mine = array("q", values)
    handle = core.submit(
        Kind.ALLGATHER, [(mine.buffer_info()[0], 0, _INT64, (len(values),))], mine, (name, 0, 0, 1.0, 1.0, process_set)
    )
    handle.wait()
    return [value for (value,) in struct.iter_unpack("q", bytes(memoryview(handle.outputs()[0])))]
