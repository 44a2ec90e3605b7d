"""Files of recorders as the core writes them, and recordings, for tests of `farandole inspect`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from farandole.observe.diagnosis import Rank
from farandole.observe.processes import Activity
from farandole.observe.records import KINDS, Link, Operation, Recording, State

NOW_NS = 100_000_000_000
RECORDS, TEXTS = 8, 16
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Written:
    """One record of a file: ticks are nanoseconds since the first moment."""

    number: int
    name: int = 1
    site: int = 0
    kind: str = "allreduce"
    submitted: int = 10
    ended: int = 0
    size: int = 4

    def bytes(self, sequence: int | None = None) -> bytes:
        whole = 2 * self.number + 1 if sequence is None else sequence
        times = whole, self.submitted, self.ended, self.size, 0, 0
        return struct.pack(
            "<QQQQIIIIiIBBBBI", *times, self.name, self.site, 0, self.number, KINDS.index(self.kind), 8, 0, 0, 1
        )


def file_of(
    records: Sequence[Written],
    texts: Sequence[tuple[str, str]] = (("grad", "(3,)"),),
    state: int = 1,
    rank: int = 0,
    links: Sequence[Link] = (),
    process: tuple[int, int] = (42, 7),
    epoch: int = 0,
    late_ns: int = NOW_NS,
) -> bytes:
    """A whole file. The first text has the number 1. `process`: its number and start."""
    clock = 2, 0, 0, late_ns, late_ns  # a tick is a nanosecond
    header = struct.pack(
        "<8sIIIiiiIIQQQqQqQQiI16s2048s",
        b"FRDFLT02",
        RECORDS,
        TEXTS,
        len(links),
        process[0],
        rank,
        2,
        state,
        epoch,
        process[1],
        *clock,
        9,
        1,
        -1,
        3,
        b"ab12",
        b"why not",
    )
    written = {record.number % RECORDS: record for record in records}
    ring = b"".join(written[i].bytes() if i in written else bytes(64) for i in range(RECORDS))
    text = b"".join(_text(number, texts) for number in range(TEXTS))
    of_links = b"".join(
        struct.pack(
            "<QQQQIi24x",
            each.sent_bytes,
            each.received_bytes,
            each.sending_us,
            each.retransmits,
            each.round_trip_us,
            each.peer,
        )
        for each in links
    )
    return header.ljust(4096, b"\0") + ring + text + of_links


def _text(number: int, texts: Sequence[tuple[str, str]]) -> bytes:
    if not 1 <= number <= len(texts):
        return bytes(128)
    first, second = (each.encode() for each in texts[number - 1])
    return struct.pack("<IHH120s", number, len(first), len(second), first + second)


# ---- recordings


def operation(
    name: str = "grad", count: int = 1, *, ago_s: float = 5.0, ended_ago_s: float | None = None, **fields: object
) -> Operation:
    """An allreduce, in flight unless it has ended."""
    whole = Operation(
        number=int((NOW_NS - ago_s * SECOND) / 1000), kind="allreduce", name=name, shapes="(3,)", dtype="float32",
        process_set=0, count=count, tensors=1, bytes=12, site="train.py:9", submitted_ns=int(NOW_NS - ago_s * SECOND),
        ended_ns=None if ended_ago_s is None else int(NOW_NS - ended_ago_s * SECOND),
    )  # fmt: skip
    return replace(whole, **fields)  # type: ignore[arg-type]


def done(name: str = "grad", count: int = 1, **fields: object) -> Operation:
    """One that has ended 6 seconds ago."""
    return operation(name, count, ago_s=7.0, ended_ago_s=6.0, **fields)


def rank(
    number: int,
    *operations: Operation,
    does: Activity = Activity.SLEEPING,
    state: State = State.RUNNING,
    size: int = 3,
    reason: str = "",
    culprit: int = -1,
) -> Rank:
    """A rank that has begun these operations."""
    recording = Recording(
        "ab12", number, size, 100 + number, 7, state, culprit, reason, NOW_NS, len(operations), 0, operations
    )
    return Rank(recording, does)


def called(name: str, begin_ns: int, end_ns: int) -> Operation:
    """A call that has ended, without phases."""
    return Operation(0, "allreduce", name, "", "", 0, 0, 1, 4, "", begin_ns, ended_ns=end_ns)
