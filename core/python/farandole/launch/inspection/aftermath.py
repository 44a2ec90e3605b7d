"""The launcher's use of its ranks' flight recorders on this host."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from farandole.launch.inspection import jobs, processes
from farandole.launch.inspection.diagnosis import Activity, Kind, Rank, diagnose
from farandole.launch.inspection.records import RecordError, Recording, Wanted
from farandole.launch.inspection.watch import HostWatch

_RUN_DIGITS = 12
_MOST_OPERATIONS = 512  # of a rank, for a sentence about it


def run_of(key: bytes) -> str:
    """The name that ranks with this key give their job: RecorderOf in the core's engine."""
    return hmac.new(key, b"flight recorder", hashlib.sha256).hexdigest()[:_RUN_DIGITS]


class Flights:
    """The recorders' files of one job. `watch`: looks at them while it runs."""

    def __init__(self, base: Mapping[str, str], key: bytes) -> None:
        self._folders = jobs.folders(base)
        self._run = run_of(key)
        self._names = f"{self._run}.*.flight"
        self.watch = HostWatch(base, self._run)

    def last_words(self, rank: int) -> str:
        """A sentence about what a rank that is dead did last; "" for one that could say so itself."""
        ranks = []
        for recording in self._recordings(self._names, _MOST_OPERATIONS).values():
            gone = processes.look(recording, time.monotonic_ns()).is_gone
            ranks.append(Rank(recording, Activity.GONE if gone else Activity.UNKNOWN))
        if not ranks:
            return ""
        found = diagnose(ranks, time.monotonic_ns())
        return found.sentence if found.kind is Kind.LOST and rank in found.culprits else ""

    def remove(self, pids: Collection[int]) -> None:
        """Remove the files of the processes that have ended. `pids`: of all ranks that there were.

        Each world of an elastic job has a key, and so a name, of its own: only that of the first one is known here.
        Ranks remove the files of the last world, unless one was killed in it.
        """
        for names in (self._names, *(f"*.{pid}.flight" for pid in pids)):
            for path, recording in self._recordings(names, 0).items():
                if processes.look(recording, time.monotonic_ns()).is_gone:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _recordings(self, names: str, operations: int) -> dict[Path, Recording]:
        """`operations`: so many of each rank, the latest, beside those in flight."""
        found = {}
        for folder in self._folders:
            for path in sorted(folder.glob(names)):
                with contextlib.suppress(OSError, RecordError):
                    found[path] = jobs.read(path, Wanted(most=operations))
        return found
