"""Frames for the page, made of what the ranks have recorded. Pure.

A frame stands for itself: one that a slow reader has missed leaves a gap, and later frames are as true without it.
Its size has a limit. Of the operations of a rank those come that took longest; the frame counts the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from statistics import median

from farandole.observe.diagnosis import Diagnosis, Kind, Rank, diagnose
from farandole.observe.records import Operation, Recording
from farandole.observe.tails import Seen
from farandole.observe.waits import Call, covered, waited_for

MOST_OPERATIONS = 2000  # in a frame, of all ranks
WINDOW_NS = 5_000_000_000  # over which shares, bytes and steps are taken
_MOST_CHARACTERS = 96  # of a name
_SLOW_FROM = 0.1  # of the time
_SURE_AFTER_NS = 1_000_000_000
_MOST_LINKS = 64  # in a frame, the busiest
_MOST_NAMED = 64  # culprits and ranks that wait

Frame = dict[str, object]


@dataclass
class _Former:
    """Up to where earlier frames have told about a rank."""

    process: tuple[int, int, int]
    ended: int  # operations that had ended
    last: int = -1  # the number of the latest operation
    pending: set[int] = field(default_factory=set)
    at_ns: int = 0
    sent: dict[int, int] = field(default_factory=dict)  # bytes, by peer


def _process_of(recording: Recording) -> tuple[int, int, int]:
    """The number of the process, its start, and its epoch: where one differs, counts begin anew."""
    return recording.pid, recording.process_start, recording.epoch


class _Names:
    """The texts of a frame, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        if len(text) > _MOST_CHARACTERS:
            text = "..." + text[3 - _MOST_CHARACTERS :]
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


class Model:
    """Makes a frame of each look at the ranks of one job."""

    def __init__(self, start_ns: int, most: int = MOST_OPERATIONS) -> None:
        self._start_ns, self._most = start_ns, most
        self._former: dict[int, _Former] = {}

    def frame(self, seen: Sequence[Seen], now_ns: int) -> Frame:
        """A frame of all that has happened since the frame before. `seen`: the ranks of this host, at least one.

        Times are microseconds since the start. page/page.js reads the rows in the same order.
        """
        names, rows, operations, links, left_out = _Names(), [], [], [], 0
        arrivals = arrivals_of([each.rank for each in seen], now_ns)
        found = verdict([each.rank for each in seen], arrivals, now_ns)
        for each in sorted(seen, key=lambda each: each.rank.number):
            links += self._links(each.rank, now_ns)
            shown, omitted, per_s = self._since(each.rank, now_ns, max(1, self._most // len(seen)))
            left_out += omitted
            operations += [self._operation(each.rank.number, operation, arrivals, names) for operation in shown]
            rows.append(self._row(each, per_s, now_ns, arrivals, names))
        return {
            "t": self._us(now_ns),
            "job": seen[0].rank.recording.run,
            "size": max(each.rank.recording.size for each in seen),
            "kind": found.kind.value,
            "sentence": found.sentence,
            "culprits": found.culprits[:_MOST_NAMED],
            "waiting": found.waiting[:_MOST_NAMED],
            "left_out": left_out,
            "names": names.texts,
            "ranks": rows,
            "operations": operations,
            "links": sorted(links, reverse=True)[:_MOST_LINKS],
        }

    def _links(self, rank: Rank, now_ns: int) -> list[list[int]]:
        """Bytes a second to each peer since the last frame, rank, peer, round trip, packets that were sent again."""
        former = self._former.get(rank.number)
        if former is None or former.process != _process_of(rank.recording) or now_ns <= former.at_ns:
            return []
        passed_s = (now_ns - former.at_ns) / 1e9
        return [
            [
                round(max(0, link.sent_bytes - former.sent.get(link.peer, link.sent_bytes)) / passed_s),
                rank.number,
                link.peer,
                link.round_trip_us,
                link.retransmits,
            ]
            for link in rank.recording.links
        ]

    def _since(self, rank: Rank, now_ns: int, most: int) -> tuple[list[Operation], int, float]:
        """The longest operations that ended since the last frame, how many others did, and all per second."""
        recording = rank.recording
        process = _process_of(recording)
        pending = {operation.number for operation in rank.pending}
        ended = recording.begun - len(pending)
        former = self._former.get(rank.number)
        is_first = former is None or former.process != process or ended < former.ended
        if former is None or is_first:
            former = _Former(process, ended)
        new = [
            operation
            for operation in recording.operations
            if operation.ended_ns is not None and (operation.number > former.last or operation.number in former.pending)
        ]
        shown = heapq.nlargest(most, new, key=_took_ns)
        passed_s = (now_ns - former.at_ns) / 1e9
        count = len(new) if is_first else ended - former.ended
        last = rank.last.number if rank.last is not None else former.last
        sent = {link.peer: link.sent_bytes for link in recording.links}
        self._former[rank.number] = _Former(process, ended, last, pending, now_ns, sent)
        return shown, max(0, count - len(shown)), 0.0 if is_first or passed_s <= 0 else count / passed_s

    def _row(self, seen: Seen, per_s: float, now_ns: int, arrivals: Arrivals, names: _Names) -> list[object]:
        rank, recording = seen.rank, seen.rank.recording
        oldest = rank.pending[0] if rank.pending and rank.is_there else None
        measured = measure(recording.operations, now_ns, arrivals)
        return [
            rank.number,
            recording.pid,
            recording.state.name.lower(),
            rank.activity.name.lower(),
            -1 if oldest is None else names.place(oldest.title + oldest.place),
            0 if oldest is None else self._us(oldest.submitted_ns),
            recording.begun,
            round(per_s, 1),
            round(measured.bytes_per_s),
            round(measured.in_flight, 3),
            round(measured.waiting, 3),
            -1 if measured.step_ns is None else round(measured.step_ns / 1000),
            seen.memory_bytes,
            round(arrivals.kept_share(rank.number), 3),
        ]

    def _operation(self, rank: int, operation: Operation, arrivals: Arrivals, names: _Names) -> list[object]:
        submitted = operation.submitted_ns

        def after(at_ns: int | None) -> int:
            return -1 if at_ns is None else max(0, (at_ns - submitted) // 1000)

        title = names.place(operation.title + operation.place)
        took = after(operation.ended_ns)
        phases = after(arrivals.agreed_ns(operation)), after(operation.started_ns)
        return [rank, title, self._us(submitted), took, *phases, operation.bytes, int(operation.failed)]

    def _us(self, at_ns: int) -> int:
        return (at_ns - self._start_ns) // 1000


_Key = tuple[int, str, int, str]


@dataclass(frozen=True)
class Arrivals:
    """Of operations that all ranks have begun, within a time. Empty where not all ranks are on this host."""

    last: dict[_Key, tuple[int, int]] = field(default_factory=dict)  # when the last rank came, and which
    kept_ns: dict[int, float] = field(default_factory=dict)  # by rank: for so long all others waited for it
    covered_ns: int = 1
    lacking: frozenset[_Key] = frozenset()  # operations that some rank has not begun yet
    now_ns: int = 0

    def kept_share(self, rank: int) -> float:
        """The share of the time in which all others waited for a rank."""
        return self.kept_ns.get(rank, 0.0) / self.covered_ns

    def agreed_ns(self, operation: Operation) -> int | None:
        """The time at which all had come; of small operations, which have no phases, by the other ranks' records."""
        if operation.agreed_ns is not None:
            return operation.agreed_ns
        if operation.ended_ns is None:
            return self.now_ns if _key(operation) in self.lacking else None
        arrival = self.last.get(_key(operation))
        if arrival is None:
            return None
        return min(max(arrival[0], operation.submitted_ns), operation.ended_ns)


_NONE = Arrivals()


def arrivals_of(ranks: Sequence[Rank], now_ns: int) -> Arrivals:
    """The ranks that came last, over the window or over the shorter time that all ranks' records reach back."""
    size = max(rank.recording.size for rank in ranks)
    if len(ranks) < max(2, size) or not all(rank.recording.operations for rank in ranks):
        return Arrivals()
    came: dict[_Key, list[tuple[int, int]]] = {}
    for rank in ranks:
        for each in rank.recording.operations:
            if each.process_set == 0 and (each.ended_ns is None or each.submitted_ns >= now_ns - WINDOW_NS):
                came.setdefault(_key(each), []).append((each.submitted_ns, rank.number))
    whole = {key: times for key, times in came.items() if len(times) == size}
    last = {key: max(times) for key, times in whole.items()}
    from_ns = max(now_ns - WINDOW_NS, min((at for times in whole.values() for at, _ in times), default=now_ns - 1))
    waits = waited_for({rank.number: _calls(rank, last) for rank in ranks})
    kept_ns = {number: covered(spans, from_ns, now_ns) for number, spans in waits.items()}
    return Arrivals(last, kept_ns, max(1, now_ns - from_ns), frozenset(came.keys() - last.keys()), now_ns)


def _calls(rank: Rank, last: dict[_Key, tuple[int, int]]) -> list[Call]:
    return [
        Call(each.submitted_ns, each.ended_ns or inf, *last.get(_key(each), ()))
        for each in rank.recording.operations
        if each.process_set == 0
    ]


def verdict(ranks: Sequence[Rank], arrivals: Arrivals, now_ns: int) -> Diagnosis:
    """The sentence about what holds the job up, or of a job that moves, who slows it down."""
    found = diagnose(ranks, now_ns)
    share, slowest = max((arrivals.kept_share(rank.number), rank.number) for rank in ranks)
    if found.kind is not Kind.MOVES or share < _SLOW_FROM or arrivals.covered_ns < _SURE_AFTER_NS:
        return found
    sentence = f"all other ranks wait for rank {slowest} for {share:.0%} of the time: it comes last to operations"
    return replace(found, sentence=sentence, culprits=(slowest,))


def _key(operation: Operation) -> _Key:
    return operation.process_set, operation.name, operation.count, operation.kind


@dataclass(frozen=True)
class Measured:
    """A rank over the last seconds."""

    bytes_per_s: float = 0.0  # of its operations' operands
    in_flight: float = 0.0  # share of the time with at least one operation
    waiting: float = 0.0  # share of the time in which it waited for other ranks to make a call
    step_ns: float | None = None  # from one use of the largest named operation to the next


def measure(operations: Sequence[Operation], now_ns: int, arrivals: Arrivals = _NONE) -> Measured:
    """Take means over the window, or over the shorter time that the records reach back. `operations`: by number."""
    from_ns = now_ns - WINDOW_NS
    within = [each for each in operations if each.ended_ns is None or each.ended_ns > from_ns]
    if not within:
        return Measured()
    if len(within) == len(operations):
        from_ns = max(from_ns, min(each.submitted_ns for each in within))
    passed = max(now_ns - from_ns, 1)
    done = [each for each in within if each.ended_ns is not None]
    flights = ((each.submitted_ns, each.ended_ns or now_ns) for each in within)
    agreed = ((each.submitted_ns, arrivals.agreed_ns(each)) for each in within)
    waits = ((begin, end) for begin, end in agreed if end is not None)
    return Measured(
        sum(each.bytes for each in done) * 1e9 / passed,
        covered(flights, from_ns, now_ns) / passed,
        covered(waits, from_ns, now_ns) / passed,
        step_ns(within),
    )


def step_ns(operations: Iterable[Operation]) -> float | None:
    """The median time between uses of the named operation that moves most bytes, as a step has each gradient once."""
    uses: dict[tuple[str, str], list[Operation]] = {}
    for operation in operations:
        if operation.name and operation.tensors:
            uses.setdefault((operation.kind, operation.name), []).append(operation)
    repeated = [each for each in uses.values() if len(each) >= 3]
    if not repeated:
        return None
    most = max(repeated, key=lambda each: (each[-1].bytes, len(each)))
    return median(after.submitted_ns - before.submitted_ns for before, after in pairwise(most))


def _took_ns(operation: Operation) -> int:
    return (operation.ended_ns or 0) - operation.submitted_ns
