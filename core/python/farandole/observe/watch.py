"""The launcher's watch over a running job, which reports the ranks that make the others wait.

    recorders, /proc -> HostWatch.look -> Snapshot --(from other hosts: as a message)--> JobWatch.hear -> sentences

Each host examines its own ranks. The launcher of the job hears all hosts, since only together they show who is missing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from farandole.observe import recorders
from farandole.observe.diagnosis import Diagnosis, Kind, Rank, diagnose, last_seen
from farandole.observe.processes import Activity, is_alive
from farandole.observe.records import State, Wanted
from farandole.observe.slow_links import Links, SlowLinks
from farandole.observe.snapshot import Snapshot
from farandole.observe.step_times import Meter, StepTimes
from farandole.observe.stragglers import Stragglers, Straggling
from farandole.observe.tails import Tails, pause_s

EVERY_S = 0.5
_WANTED = Wanted(most=512)  # operations of a rank, for a sentence about its end
_SHARE, _MOST_S = 0.0025, 2.0  # share of all processors for looks, and most seconds between two
_STUCK_S = 1.0  # without the end of an operation, after which hosts report what their ranks do
_FRESH_S = 3.0  # an older snapshot is not used
_AGAIN_S = 60.0  # until a report is repeated; then twice as long, and so on
_STEADY_STEPS = 20
_STALL_S, _FIRST_STALL_S = 5.0, 10.0  # in steady steps, and before
_UNUSUAL = 3.0  # multiple of the longest wait so far
_NOT_OURS = (Kind.MOVES, Kind.LOST, Kind.FAILED, Kind.UNSEEN)  # the launcher sees all hosts and the ends of ranks


class HostWatch:
    """Examines the ranks of a job on this host. `members` has the member numbers of each epoch of an elastic job."""

    def __init__(self, base: Mapping[str, str], run: str, members: Mapping[int, Sequence[int]]) -> None:
        self._tails = Tails(base, lambda recording: recording.run == run, f"{run}.")
        self._members = members
        self._meters: dict[tuple[int, int], Meter] = {}  # by rank and process
        self._warn_after_s = _seconds(base.get("FARANDOLE_WARN_AFTER", ""))
        self._due_s = time.monotonic() + EVERY_S

    def next_due(self, now: float) -> float:
        """Return the seconds until the next snapshot is due."""
        return max(0.0, self._due_s - now)

    def look(self, now: float) -> Snapshot | None:
        """Return a snapshot, if it is due and a rank has a recorder."""
        if now < self._due_s:
            return None
        began_s = time.thread_time()
        seen = [replace(each, recording=each.recording.numbered(self._members)) for each in self._tails.look()]
        step_times = {each.number: self._step_times(each) for each in seen if each.is_there}
        self._due_s = now + pause_s(time.thread_time() - began_s, _SHARE, EVERY_S, _MOST_S)
        if not seen:
            return None
        recordings = [each.recording for each in seen if each.is_there]
        links = {(each.rank, link.peer): link for each in recordings for link in each.links if link.sent_bytes}
        stuck = tuple(seen) if all(_is_stuck(each, now) for each in seen) else ()
        return Snapshot(step_times, links, stuck, self._warn_after_s, seen[0].recording.epoch)

    def _step_times(self, rank: Rank) -> StepTimes:
        recording, look = rank.recording, rank.look
        meter = self._meters.setdefault((recording.rank, recording.pid), Meter())
        meter.feed(recording.operations, recording.epoch)
        return meter.times(look.run_ns, look.queued_ns, look.at_ns) if look and look.run_ns else meter.times()


def _seconds(text: str) -> float:
    """Return the number, or 0 for anything else, about which the ranks complain themselves."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _is_stuck(rank: Rank, now: float) -> bool:
    """Return whether no operation of the rank has ended for a while, and two looks show what its process does."""
    if rank.activity is Activity.UNKNOWN:
        return False
    ends = [each.ended_ns for each in rank.recording.operations if each.ended_ns is not None]
    return now - max(ends, default=0) / 1e9 >= _STUCK_S


class JobRecorders:
    """The files of one job's flight recorders on this host. `watch` examines them while the job runs."""

    def __init__(self, base: Mapping[str, str], key: bytes) -> None:
        self._folders = recorders.folders(base.get(recorders.VARIABLE, ""))
        self._run = recorders.name_of_job(key)
        self._members: dict[int, Sequence[int]] = {}  # by epoch; none for the first
        self.watch = HostWatch(base, self._run, self._members)

    def enter_epoch(self, number: int, members: Sequence[int]) -> None:
        """Note the member numbers of the ranks in the next epoch of an elastic job."""
        self._members[number] = members

    def last_words(self, rank: int) -> str:
        """Say what a dead rank did last, as in "it was in allreduce 'x'", or "" if it could report its end itself.

        In an elastic job, `rank` is a member number.
        """
        recordings = [each.numbered(self._members) for each in recorders.read_all(self._paths(), _WANTED)]
        own = [each for each in recordings if each.rank == rank]
        latest = max(own, key=lambda each: (each.epoch, each.late_ns), default=None)
        if latest is None or latest.state is not State.RUNNING or is_alive(latest):
            return ""
        return last_seen(Rank(latest), time.monotonic_ns())

    def remove(self) -> None:
        """Remove the files of the processes that have ended."""
        for path, recording in recorders.outlines(self._paths()).items():
            if not is_alive(recording):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _paths(self) -> list[Path]:
        return recorders.paths(self._folders, f"{self._run}.")


@dataclass
class _Reported:
    """When something was last reported, and how long until it may be reported again."""

    at_s: float
    pause_s: float = _AGAIN_S


@dataclass
class JobWatch:
    """Combines the snapshots of all hosts. `hosts` has the name of each rank's host, if there are several."""

    hosts: Mapping[int, str] = field(default_factory=dict)
    _snapshots: dict[str, tuple[float, Snapshot]] = field(default_factory=dict)
    _stragglers: Stragglers = field(default_factory=Stragglers)
    _slow_links: SlowLinks = field(default_factory=SlowLinks)
    _reported: dict[object, _Reported] = field(default_factory=dict)
    _looked_s: float = 0.0

    def hear(self, source: str, snapshot: Snapshot, now: float, size: int) -> list[str]:
        """Take a snapshot of one host, and return sentences, usually none. `size` is the number of running ranks.

        `now` is a time by time.monotonic before the host was examined, as are the times in the snapshot.
        """
        self._snapshots[source] = now, snapshot
        if now - self._looked_s < EVERY_S / 2:
            return []
        self._looked_s = now
        fresh = [each for at_s, each in self._snapshots.values() if now - at_s <= _FRESH_S]
        epoch = max((each.epoch for each in fresh), default=0)
        fresh = [each for each in fresh if each.epoch == epoch]
        step_times = {rank: times for each in fresh for rank, times in each.step_times.items()}
        sentences = self._about_links({pair: link for each in fresh for pair, link in each.links.items()}, now)
        if len(step_times) == size > 1:
            late = self._stragglers.find(step_times, now)
            if late is not None and self._is_news((late.ranks, late.cause), now):
                sentences.append(self._about(late))
        # Several hosts of a cluster may be one machine, which then sees the ranks of all of them.
        ranks = [*{rank.number: rank for each in fresh for rank in each.stuck}.values()]
        warn_after_s = max((each.warn_after_s for each in fresh), default=0.0)
        stall = self._stall(ranks, step_times, warn_after_s, now) if 0 < size <= len(ranks) else None
        if stall is not None and self._is_news((stall.culprits, stall.kind), now):
            sentences.append(stall.sentence)
        return sentences

    def _about_links(self, links: Links, now: float) -> list[str]:
        """Report only the slowest link: often the host is slow, and then its other links are just as slow."""
        slow = self._slow_links.find(links, now)
        if not slow or not self._is_news("links", now):
            return []
        link = slow[0]
        more = f"; {len(slow) - 1} other links are slow, too" if slow[1:] else ""
        return [
            f"the network from rank {self._named(link.sender)} to rank {self._named(link.receiver)} is slow: "
            f"{link.rate / 1e6:.3g} MB/s while it sends, {link.usual / 1e6:.3g} MB/s before{more}"
        ]

    @staticmethod
    def _stall(
        ranks: list[Rank], step_times: Mapping[int, StepTimes], warn_after_s: float, now: float
    ) -> Diagnosis | None:
        """Return what holds the job up, once that has lasted longer than usual."""
        found = diagnose(ranks, round(now * 1e9))
        if found.kind in _NOT_OURS:
            return None
        steady = min((each.steps for each in step_times.values()), default=0) >= _STEADY_STEPS
        longest_s = max((each.longest_s for each in step_times.values()), default=0.0)
        usual_s = warn_after_s or (_STALL_S if steady else _FIRST_STALL_S)
        patience_s = max(usual_s, _UNUSUAL * longest_s)
        return found if found.waited_s >= patience_s else None

    def _is_news(self, about: object, now: float) -> bool:
        reported = self._reported.get(about)
        if reported is None:
            self._reported[about] = _Reported(now)
        elif now - reported.at_s < reported.pause_s:
            return False
        else:
            reported.at_s, reported.pause_s = now, 2 * reported.pause_s
        return True

    def _about(self, late: Straggling) -> str:
        one = len(late.ranks) == 1
        named = ", ".join(map(self._named, late.ranks))
        who = f"rank {named} makes" if one else f"ranks {named} make"
        why = f"; the reason is {late.cause.value}" if late.cause.value else ""
        return (
            f"{who} the others wait for {late.lost:.0%} of the time (over {late.seconds:g} s and {late.steps} steps)"
            f"{why}"
        )

    def _named(self, rank: int) -> str:
        return f"{rank} on {self.hosts[rank]}" if rank in self.hosts else str(rank)
