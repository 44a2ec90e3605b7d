"""The launcher's use of its ranks' flight recorders on this host."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from farandole.observe import jobs, processes
from farandole.observe.diagnosis import Activity, Kind, Rank, diagnose
from farandole.observe.records import RecordError, Recording, Wanted
from farandole.observe.watch import HostWatch

_RUN_DIGITS = 12
_MOST_OPERATIONS = 512  # of a rank, for a sentence about it


def run_of(key: bytes) -> str:
    """The name that ranks with this key give their job: `prepare` in _start/flight_files.py."""
    return hmac.new(key, b"flight recorder", hashlib.sha256).hexdigest()[:_RUN_DIGITS]


class Flights:
    """The recorders' files of one job. `watch`: looks at them while it runs."""

    def __init__(self, base: Mapping[str, str], key: bytes) -> None:
        self._folders = jobs.folders(base)
        self._run = run_of(key)
        self._members: dict[int, Sequence[int]] = {}  # by epoch; none for the first, where a rank is its number
        self.watch = HostWatch(base, self._run, self._members)

    def enter_epoch(self, number: int, members: Sequence[int]) -> None:
        """The ranks of an elastic job go on as these, named in the order of start."""
        self._members[number] = members

    def last_words(self, rank: int) -> str:
        """A sentence about what a rank that is dead did last; "" for one that could say so itself.

        In an elastic job ranks are named in the order of start, in the sentence, too.
        """
        recordings = [each.numbered(self._members) for each in self._recordings(_MOST_OPERATIONS).values()]
        epoch = max((each.epoch for each in recordings if each.rank == rank), default=None)
        if epoch is None:
            return ""
        ranks = []
        for recording in jobs.of_last_epoch([each for each in recordings if each.epoch == epoch]):
            gone = processes.look(recording, time.monotonic_ns()).is_gone
            ranks.append(Rank(recording, Activity.GONE if gone else Activity.UNKNOWN))
        found = diagnose(ranks, time.monotonic_ns())
        return found.sentence if found.kind is Kind.LOST and rank in found.culprits else ""

    def remove(self) -> None:
        """Remove the files of the processes that have ended."""
        for path, recording in self._recordings(0).items():
            if processes.look(recording, time.monotonic_ns()).is_gone:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _recordings(self, operations: int) -> dict[Path, Recording]:
        """`operations`: so many of each rank, the latest, beside those in flight."""
        found = {}
        for folder in self._folders:
            for path in sorted(folder.glob(f"{self._run}.*.flight")):
                with contextlib.suppress(OSError, RecordError):
                    found[path] = jobs.read(path, Wanted(most=operations))
        return found
