"""Makes frames for the page from the ranks' records. Pure.

Frames do not depend on each other: if a slow reader misses one, there is a gap, and later frames are still correct. The
size of a frame is limited. It contains the longest operations of each rank, and the count of the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from farandole.observe.diagnosis import Diagnosis, Kind, Rank, diagnose
from farandole.observe.live.metrics import arrivals_of_ranks, numbers
from farandole.observe.records import Operation
from farandole.observe.waits import Arrivals

MOST_OPERATIONS = 2000  # in a frame, of all ranks
_MOST_CHARACTERS = 96  # of a name
_SLOW_FROM = 0.1  # share of the time
_SURE_AFTER_NS = 1_000_000_000
_MOST_LINKS = 64  # in a frame: those that have sent the most
_MOST_NAMED = 64  # culprits and ranks that wait

Frame = dict[str, object]


@dataclass
class _Former:
    """How far earlier frames have covered a rank."""

    ended: int  # operations that had ended
    last: int = -1  # the number of the latest operation
    pending: set[int] = field(default_factory=set)


class _Names:
    """The distinct texts of a frame."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        text = _shortened(text)
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"...{text[3 - _MOST_CHARACTERS :]}"


class Model:
    """Makes a frame from each look at the ranks of one job."""

    def __init__(self, start_ns: int, most: int = MOST_OPERATIONS) -> None:
        self._start_ns, self._most = start_ns, most
        self._former: dict[tuple[int, int, int], _Former] = {}  # by process

    def frame(self, ranks: Sequence[Rank], now_ns: int) -> Frame:
        """Return a frame of what has happened since the last one. `ranks` are those of this host, at least one.

        Times are microseconds since the start. page/page.js reads the rows of operations and links in this order.
        """
        names, rows, operations, links, left_out = _Names(), [], [], [], 0
        arrivals = arrivals_of_ranks(ranks, now_ns)
        found = diagnose_with_waits(ranks, arrivals, now_ns)
        for each in sorted(ranks, key=lambda each: each.number):
            links += [
                (link.sent_bytes, each.number, link.peer, link.round_trip_us, link.retransmits)
                for link in each.recording.links
            ]
            shown, omitted = self._since(each, max(1, self._most // len(ranks)))
            left_out += omitted
            operations += [self._operation(each.number, operation, arrivals, names) for operation in shown]
            rows.append(self._row(each, now_ns, arrivals))
        return {
            "t": self._us(now_ns),
            "job": ranks[0].recording.run,
            "size": max(each.recording.size for each in ranks),
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

    def _since(self, rank: Rank, most: int) -> tuple[list[Operation], int]:
        """Return the longest operations that have ended since the last frame, and the count of the others."""
        recording = rank.recording
        process = recording.pid, recording.process_start, recording.epoch  # if one of these differs, counts begin again
        pending = {operation.number for operation in rank.pending}
        ended = recording.begun - len(pending)
        known = self._former.get(process)
        former = known or _Former(ended)
        new = [
            operation
            for operation in recording.operations
            if operation.ended_ns is not None and (operation.number > former.last or operation.number in former.pending)
        ]
        shown = heapq.nlargest(most, new, key=lambda each: (each.ended_ns or 0) - each.submitted_ns)
        last = rank.last.number if rank.last is not None else former.last
        self._former[process] = _Former(ended, last, pending)
        count = ended - former.ended if known else len(new)
        return shown, max(0, count - len(shown))

    def _row(self, rank: Rank, now_ns: int, arrivals: Arrivals) -> dict[str, object]:
        oldest = rank.pending[0] if rank.pending and rank.is_there else None
        return {
            "rank": rank.number,
            "pid": rank.recording.pid,
            "state": rank.recording.state.name.lower(),
            "activity": rank.activity.name.lower(),
            "in": "" if oldest is None else _shortened(oldest.title + oldest.place),
            "since": 0 if oldest is None else self._us(oldest.submitted_ns),
            **numbers(rank, arrivals, now_ns),
        }

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


def diagnose_with_waits(ranks: Sequence[Rank], arrivals: Arrivals, now_ns: int) -> Diagnosis:
    """Return the sentence about what holds the job up or, in a job that moves, which rank slows it down."""
    found = diagnose(ranks, now_ns)
    share, slowest = max((arrivals.kept_share(rank.number), rank.number) for rank in ranks)
    if found.kind is not Kind.MOVES or share < _SLOW_FROM or arrivals.covered_ns < _SURE_AFTER_NS:
        return found
    sentence = f"all other ranks wait for rank {slowest} for {share:.0%} of the time: it comes last to operations"
    return replace(found, sentence=sentence, culprits=(slowest,))
