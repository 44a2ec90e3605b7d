"""The launcher's use of its ranks' flight recorders on this host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from farandole.observe import jobs, recorders
from farandole.observe.diagnosis import Kind, Rank, diagnose
from farandole.observe.processes import Activity, is_alive
from farandole.observe.records import Wanted
from farandole.observe.watch import HostWatch

_WANTED = Wanted(most=512)  # operations of a rank, for a sentence about it


class JobRecorders:
    """The recorders' files of one job. `watch`: looks at them while it runs."""

    def __init__(self, base: Mapping[str, str], key: bytes) -> None:
        self._folders = recorders.folders(base.get(recorders.VARIABLE, ""))
        self._run = recorders.name_of_job(key)
        self._members: dict[int, Sequence[int]] = {}  # by epoch; none for the first, where a rank is its number
        self.watch = HostWatch(base, self._run, self._members)

    def enter_epoch(self, number: int, members: Sequence[int]) -> None:
        """The ranks of an elastic job go on as these, named in the order of start."""
        self._members[number] = members

    def last_words(self, rank: int) -> str:
        """A sentence about what a rank that is dead did last; "" for one that could say so itself.

        In an elastic job ranks are named in the order of start, in the sentence, too.
        """
        found = recorders.read_all(self._paths(), _WANTED)
        recordings = [each.numbered(self._members) for each in found]
        epoch = max((each.epoch for each in recordings if each.rank == rank), default=None)
        if epoch is None:
            return ""
        ranks = [
            Rank(each, Activity.UNKNOWN if is_alive(each) else Activity.GONE)
            for each in jobs.of_last_epoch([each for each in recordings if each.epoch == epoch])
        ]
        told = diagnose(ranks, time.monotonic_ns())
        return told.sentence if told.kind is Kind.LOST and rank in told.culprits else ""

    def remove(self) -> None:
        """Remove the files of the processes that have ended."""
        for path, recording in recorders.outlines(self._paths()).items():
            if not is_alive(recording):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _paths(self) -> list[Path]:
        return recorders.paths(self._folders, f"{self._run}.")
