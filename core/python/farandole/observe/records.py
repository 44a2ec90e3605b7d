"""Parses the file of a flight recorder, whose layout is in core/src/operation/flight_recorder.h. Pure.

A recorder writes while its file is read. So the file is read three times, and what differs between the copies is
dropped: `sequence` of a record and `number` of a text change before and after each change of the other fields.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from farandole._api.adapter import DType
from farandole._api.ops import Kind

MAGIC = b"FRDFLT02"
KINDS = tuple(kind.name.lower() for kind in Kind)
DTYPES = tuple(dtype.title for dtype in DType)
COPIES = 3  # of a file
HEADER_BYTES, RECORD_BYTES, TEXT_BYTES, LINK_BYTES = 4096, 64, 128, 64
MOST_RECORDS, MOST_TEXTS, MOST_LINKS = 1 << 16, 1 << 16, 1 << 12

_HEADER = struct.Struct("<8sIIIiiiIIQQQqQqQQiI16s2048s")
_RECORD = struct.Struct("<QQQQIIIIiIBBBBI")
_TEXT = struct.Struct("<IHH120s")
_RECORD_WORDS, _ENDED_WORD = RECORD_BYTES // 8, 2  # words of a record, and the word with its end
_LINK = struct.Struct("<QQQQIi24x")
_AGREED_TICKS = 1024  # the unit of `agreed` and `started`
_FAILED = 1


class RecordError(ValueError):
    """The bytes are not a file of a recorder; the message says why."""


class TornError(RecordError):
    """The file changed while it was read; the next attempt will succeed."""


class State(Enum):
    """The state of the rank's epoch."""

    RUNNING = 1
    LEFT = 2  # in good order
    ENDED = 3  # with a failure


@dataclass(frozen=True)
class Operation:
    """One operation of a rank. Times are nanoseconds of the host's monotonic clock; None: not reached, or unknown."""

    number: int  # in the order in which this rank began them
    kind: str
    name: str  # "" if it has none
    shapes: str  # if it changes process sets under a name: the members of the new set, or the number of the old one
    dtype: str
    process_set: int
    count: int  # number of the call of its name on this rank; of unnamed operations, the number on all ranks
    tensors: int
    bytes: int
    site: str  # "train.py:12", or "" if the caller did not tell
    submitted_ns: int
    agreed_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    failed: bool = False

    @property
    def title(self) -> str:
        """The name of the operation in the core's messages."""
        of_set = f" of process set {self.process_set}" if self.process_set else ""
        if self.name:
            return f"{self.kind} '{self.name}'{of_set}"
        return f"{self.kind}{of_set}" if self.kind == "join" else f"unnamed {self.kind} {self.count}{of_set}"

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that a change of process sets names."""
        return tuple(map(int, re.findall(r"\d+", self.shapes)))

    @property
    def place(self) -> str:
        """The user's line, as it follows a title in a sentence, or ""."""
        return f" ({self.site})" if self.site else ""


@dataclass(frozen=True)
class Link:
    """The kernel's counts for the TCP connections of a rank to another one."""

    peer: int
    sent_bytes: int  # that the other kernel has acknowledged
    received_bytes: int
    sending_us: int  # with unacknowledged data, without the time in which the other rank did not read
    retransmits: int
    round_trip_us: int


@dataclass(frozen=True)
class Recording:
    """The record of one rank in this epoch."""

    run: str
    rank: int
    size: int
    pid: int
    process_start: int  # field 22 of /proc/PID/stat
    state: State
    culprit: int  # the rank that was blamed for the end of the epoch, or -1
    reason: str  # of the end of the epoch
    late_ns: int  # when the recorder last noted the time
    begun: int
    lost: int  # operations without a record
    operations: tuple[Operation, ...]  # in the order in which they began
    links: tuple[Link, ...] = ()  # those that have sent the most
    epoch: int = 0  # in an elastic job

    def numbered(self, members: Mapping[int, Sequence[int]]) -> Recording:
        """Return the recording with member numbers instead of ranks.

        `members` has the member numbers of the ranks of each epoch. Ranks of other epochs stay as they are.
        """
        numbers = dict(enumerate(members.get(self.epoch, ())))
        links = tuple(replace(link, peer=numbers.get(link.peer, link.peer)) for link in self.links)
        rank, culprit = (numbers.get(each, each) for each in (self.rank, self.culprit))
        return replace(self, rank=rank, culprit=culprit, links=links)


@dataclass(frozen=True)
class _Clock:
    """Converts ticks to nanoseconds, by two moments that are known in both units."""

    first_ticks: int
    first_ns: int
    late_ticks: int
    late_ns: int

    def at(self, ticks: int) -> int:
        passed = self.late_ticks - self.first_ticks
        rate = (self.late_ns - self.first_ns) / passed if passed > 0 else 0.0
        return self.late_ns + round((ticks - self.late_ticks) * rate)


@dataclass(frozen=True)
class Wanted:
    """The operations that a reader wants, which makes frequent reads cheaper. Those in flight are always included."""

    since: int = 0  # the smallest number of an operation
    most: int = MOST_RECORDS  # at most so many, the latest
    also: Collection[int] = ()  # numbers of more operations


ALL = Wanted()


def outline(header: bytes | bytearray) -> Recording:
    """Parse the beginning of a file: everything except operations and links. Raises RecordError."""
    _, _, _, _, pid, rank, size, state, epoch, start, *_, late_ns, begun, lost, culprit, reason_bytes, run, reason = (
        _header(header)
    )
    return Recording(
        run=run.rstrip(b"\0").decode("ascii", "replace"),
        rank=rank,
        size=size,
        pid=pid,
        process_start=start,
        state=State(state),
        culprit=culprit,
        reason=reason[: min(reason_bytes, len(reason))].decode("utf-8", "replace"),
        late_ns=late_ns,
        begun=begun,
        lost=lost,
        operations=(),
        epoch=epoch,
    )


def parse(copies: Sequence[bytes | bytearray], wanted: Wanted = ALL) -> Recording:
    """Parse what is equal in three copies of a file, taken one after the other. Raises RecordError."""
    before, copy, after = copies
    found = outline(copy)
    _, record_count, text_count, link_count, *_, clock_sequence = (header := _header(copy))[:11]
    if len({bytes(each[48:56]) for each in copies}) > 1 or clock_sequence % 2:
        raise TornError("its clock was being set")
    texts_at = HEADER_BYTES + record_count * RECORD_BYTES
    links_at = texts_at + text_count * TEXT_BYTES
    whole = links_at + link_count * LINK_BYTES
    if min(map(len, copies)) < whole:
        raise RecordError(f"it has {len(copy)} bytes, not {whole}")
    texts, clock = _Texts(copies, texts_at, text_count), _Clock(*header[11:15])
    operations = []
    for offset in _offsets(memoryview(copy)[HEADER_BYTES:texts_at], wanted):
        sequences = {int.from_bytes(each[offset : offset + 8], "little") for each in (before, copy, after)}
        if len(sequences) == 1 and sequences.pop() % 2 == 1:
            operations.append(_operation(_RECORD.unpack_from(copy, offset), clock, texts))
    operations.sort(key=lambda operation: operation.number)
    rows = (_LINK.unpack_from(copy, links_at + place * LINK_BYTES) for place in range(link_count))
    links = tuple(Link(peer, *counts) for *counts, peer in rows if peer >= 0)
    return replace(found, operations=tuple(operations), links=links)


def _offsets(ring: memoryview, wanted: Wanted) -> list[int]:
    """Return the offsets of the wanted records. A launcher calls this each second, so it uses fast list methods."""
    words = ring.cast("Q")
    sequences, ends = words[::_RECORD_WORDS].tolist(), words[_ENDED_WORD::_RECORD_WORDS].tolist()
    latest = max(sequences, default=0)
    first = 2 * max(wanted.since, latest // 2 - wanted.most + 1)
    places = set(_all_of(0, ends))  # in flight, or unused
    places.update(place for number in wanted.also for place in _all_of(2 * number + 1, sequences))
    if first <= latest:
        places.update(place for place, sequence in enumerate(sequences) if sequence >= first)
    return [HEADER_BYTES + place * RECORD_BYTES for place in sorted(places) if sequences[place]]


def _all_of(value: int, values: list[int]) -> Iterator[int]:
    """Yield the places of a value in a list."""
    place = -1
    with contextlib.suppress(ValueError):
        while True:
            place = values.index(value, place + 1)
            yield place


def _header(copy: bytes | bytearray) -> tuple[Any, ...]:
    if len(copy) < HEADER_BYTES or copy[: len(MAGIC)] != MAGIC:
        raise RecordError("it does not begin as a recorder's file of this version does")
    header = _HEADER.unpack_from(copy)
    too_many = header[1] > MOST_RECORDS or header[2] > MOST_TEXTS or header[3] > MOST_LINKS
    if too_many or header[7] not in {state.value for state in State}:
        raise RecordError("its header makes no sense")
    return header


class _Texts:
    """The names, shapes and sites of a file, each read when an operation asks for it."""

    def __init__(self, copies: Sequence[bytes | bytearray], start: int, count: int) -> None:
        self._copies, self._start, self._count = copies, start, count
        self._known: dict[int, tuple[str, str] | None] = {}

    def get(self, number: int, otherwise: tuple[str, str]) -> tuple[str, str]:
        """Return a text by its number, or `otherwise` if another text has taken its place."""
        if number not in self._known:
            self._known[number] = self._read(number) if number and self._count else None
        return self._known[number] or otherwise

    def _read(self, wanted: int) -> tuple[str, str] | None:
        offset = self._start + wanted % self._count * TEXT_BYTES
        numbers = {bytes(each[offset : offset + 4]) for each in self._copies}
        number, first, second, text = _TEXT.unpack_from(self._copies[1], offset)
        if len(numbers) != 1 or number != wanted:
            return None
        name, shapes = text[:first], text[first : first + second]
        return name.decode("utf-8", "replace"), shapes.decode("utf-8", "replace")


def _operation(fields: tuple[Any, ...], clock: _Clock, texts: _Texts) -> Operation:
    (sequence, submitted, ended, size, agreed, started, name, site, of_set, count) = fields[:10]
    kind, dtype, _reduce, flags, tensors = fields[10:]
    forgotten = ("a name that is forgotten", "")
    text, shapes = texts.get(name, forgotten)

    def since(units: int) -> int | None:
        return clock.at(submitted + units * _AGREED_TICKS) if units else None

    return Operation(
        number=sequence // 2,
        kind=_named(KINDS, kind),
        name=text,
        shapes=shapes,
        dtype=_named(DTYPES, dtype) if tensors else "",
        process_set=of_set,
        count=count,
        tensors=tensors,
        bytes=size,
        site=texts.get(site, ("", ""))[0],
        submitted_ns=clock.at(submitted),
        agreed_ns=since(agreed),
        started_ns=since(started),
        ended_ns=clock.at(ended) if ended else None,
        failed=bool(flags & _FAILED),
    )


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else f"number {number}"
