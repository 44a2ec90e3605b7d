"""Decides which rank waits for which, and why, from the ranks' records and the states of their processes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from farandole.observe.processes import Activity, Look
from farandole.observe.records import Operation, Recording, State

WAITS_FROM_S = 1.0  # shorter waits are not reported
_STUCK_FROM_S = 0.5  # of waiting in another operation
_MOST_NAMED = 6  # ranks in a list
_JOIN = "join"


class Kind(Enum):
    """What holds the ranks up."""

    MOVES = "moves"
    LOST = "lost"
    FAILED = "failed"
    LEFT = "left"
    STOPPED = "stopped"
    LATE = "late"
    DIVERGED = "diverged"
    SETS = "process sets"
    DATA = "data"
    UNSEEN = "unseen"


@dataclass(frozen=True)
class Rank:
    """A rank that has a recorder on this host, and the latest state of its process."""

    recording: Recording
    activity: Activity = Activity.UNKNOWN
    memory_bytes: int = 0
    look: Look | None = None

    @property
    def number(self) -> int:
        """The number of the rank."""
        return self.recording.rank

    @property
    def pending(self) -> list[Operation]:
        """The operations in flight, in the order in which the rank began them."""
        return [operation for operation in self.recording.operations if operation.ended_ns is None]

    @property
    def last(self) -> Operation | None:
        """The operation that the rank began last."""
        return self.recording.operations[-1] if self.recording.operations else None

    @property
    def is_there(self) -> bool:
        """False once the rank has left, has failed or is dead."""
        return self.recording.state is State.RUNNING and self.activity is not Activity.GONE

    def has_come_to(self, other: Operation) -> bool:
        """Return whether it has begun this operation of another rank."""
        return any(_matches(operation, other) for operation in self.recording.operations)

    def takes_part_in(self, operation: Operation) -> bool:
        """Return whether it has used the operation's process set, or belongs to a set that is changed under a name."""
        process_set = operation.process_set
        if operation.name and operation.kind == "add_process_set":
            return self.number in operation.ranks
        if operation.name and operation.kind == "remove_process_set":
            (process_set,) = operation.ranks
        return process_set == 0 or any(each.process_set == process_set for each in self.recording.operations)


@dataclass(frozen=True)
class Diagnosis:
    """The sentence for the user, and its facts for programs."""

    kind: Kind
    sentence: str
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    waited_s: float = 0.0


def diagnose(ranks: Sequence[Rank], now_ns: int) -> Diagnosis:
    """Find what holds the job up. `ranks` are the ranks of one job, at least one, in any order.

    `now_ns` is a time before the first rank was read. On a busy machine, reading takes seconds, and what happens
    meanwhile must not count as a wait.
    """
    ranks = sorted(ranks, key=lambda rank: rank.number)
    waits = _longest_wait(ranks, now_ns)
    found = _lost(ranks, now_ns) or _failed(ranks)
    if found is not None:
        return found
    if waits is None:
        return _stopped(ranks, now_ns) or Diagnosis(Kind.MOVES, _all_is_well(ranks))
    return _why(waits, ranks, now_ns)


# ---- ends


def _lost(ranks: Sequence[Rank], now_ns: int) -> Diagnosis | None:
    """Find processes that have ended without recording it, usually by a signal."""
    lost = [rank for rank in ranks if rank.recording.state is State.RUNNING and rank.activity is Activity.GONE]
    if not lost:
        return None
    first = min(lost, key=lambda rank: rank.recording.late_ns)
    others = [rank.number for rank in lost if rank is not first]
    also = f", and so {'were' if others[1:] else 'was'} {_numbered(others)}" if others else ""
    sentence = f"rank {first.number} (pid {first.recording.pid}) was lost{also}: its process ended without leaving"
    waiting = tuple(rank.number for rank in ranks if rank.is_there and rank.pending)
    return Diagnosis(Kind.LOST, f"{sentence}; {last_seen(first, now_ns)}", tuple(rank.number for rank in lost), waiting)


def _failed(ranks: Sequence[Rank]) -> Diagnosis | None:
    """Find the reason with which most ranks have ended; all of them name the rank to blame."""
    ended = [rank.recording for rank in ranks if rank.recording.state is State.ENDED]
    if not ended:
        return None
    (culprit, reason), _ = Counter((each.culprit, each.reason) for each in ended).most_common(1)[0]
    culprits = (culprit,) if culprit >= 0 else ()
    who = _numbered([each.rank for each in ended])
    return Diagnosis(Kind.FAILED, f"{who} ended with an error: {reason}", culprits)


def _stopped(ranks: Sequence[Rank], now_ns: int) -> Diagnosis | None:
    """Find stopped ranks. Those that wait for them may be on other hosts, or have not waited for long."""
    stopped = [rank for rank in ranks if rank.is_there and rank.activity is Activity.STOPPED]
    if not stopped:
        return None
    sentence = f"{_are_stopped(stopped)}; {last_seen(stopped[0], now_ns, len(stopped) == 1)}"
    return Diagnosis(Kind.STOPPED, sentence, _numbers_of(stopped))


def _are_stopped(ranks: Sequence[Rank]) -> str:
    return f"{_who(ranks)} {'is' if len(ranks) == 1 else 'are'} stopped by a signal or a debugger"


# ---- waits


@dataclass(frozen=True)
class _Wait:
    operation: Operation
    waiting: tuple[Rank, ...]
    absent: tuple[Rank, ...]  # ranks of this host that have not made the call
    waited_s: float


def _longest_wait(ranks: Sequence[Rank], now_ns: int) -> _Wait | None:
    """Find the first operation that has been in flight for long; later waits follow from it."""
    pending = [(operation, rank) for rank in ranks if rank.is_there for operation in rank.pending]
    pending = [(operation, rank) for operation, rank in pending if operation.kind != _JOIN]
    if not pending:
        return None
    first, _ = min(pending, key=lambda each: each[0].submitted_ns)
    found = _wait_in(first, ranks, now_ns)
    return found if found.waited_s >= WAITS_FROM_S else None


def _wait_in(first: Operation, ranks: Sequence[Rank], now_ns: int) -> _Wait:
    waiting = tuple(rank for rank in ranks if any(_matches(operation, first) for operation in rank.pending))
    absent = tuple(
        rank
        for rank in ranks
        if rank.takes_part_in(first)
        and not rank.has_come_to(first)
        and not any(operation.kind == _JOIN for operation in rank.pending)
    )
    return _Wait(first, waiting, absent, (now_ns - first.submitted_ns) / 1e9)


def _why(wait: _Wait, ranks: Sequence[Rank], now_ns: int) -> Diagnosis:
    gone = [rank for rank in wait.absent if rank.recording.state is State.LEFT]
    busy_elsewhere = [rank for rank in wait.absent if rank.is_there and _is_stuck(rank, wait, now_ns)]
    late = [rank for rank in wait.absent if rank.is_there and rank not in busy_elsewhere]
    if gone:
        return _about(Kind.LEFT, wait, gone, _of_leavers(wait, gone, now_ns))
    if late:
        stopped = [rank for rank in late if rank.activity is Activity.STOPPED]
        return _about(
            Kind.STOPPED if stopped else Kind.LATE, wait, stopped or late, _of_late(wait, stopped or late, now_ns)
        )
    if busy_elsewhere:
        return _of_divergence(*_of_most(wait, busy_elsewhere, ranks, now_ns), _unseen(ranks))
    return _of_nobody_absent(wait, ranks, now_ns)


def _of_most(
    wait: _Wait, elsewhere: Sequence[Rank], ranks: Sequence[Rank], now_ns: int
) -> tuple[_Wait, Sequence[Rank]]:
    """Return the wait of most ranks, and the ranks elsewhere, because the minority has probably diverged.

    Only ranks in the process sets of both operations count. If both sides have the same number of ranks, those are
    blamed whose last call has never followed the call before it.
    """
    blocking = [operation for rank in elsewhere if (operation := _blocks(rank, wait)) is not None]
    (most, _), *_ = Counter(map(_call, blocking)).most_common(1)
    other = next(operation for operation in blocking if _call(operation) == most)
    theirs = _wait_in(other, ranks, now_ns)

    def torn(found: Sequence[Rank]) -> list[Rank]:
        return [rank for rank in found if rank.takes_part_in(wait.operation) and rank.takes_part_in(other)]

    here, there = torn(wait.waiting), torn(theirs.waiting)
    odd_here = len(there) > len(here)
    if len(there) == len(here):
        odd_here = any(_is_new(rank, wait.operation) for rank in here) and not any(
            _is_new(rank, other) for rank in there
        )
    return (theirs, here) if odd_here and here else (wait, torn(elsewhere) or elsewhere)


def _of_leavers(wait: _Wait, gone: Sequence[Rank], now_ns: int) -> str:
    first = gone[0]
    behind = _behind(first, wait.operation)
    early = f" after {behind} calls fewer of {wait.operation.title}" if behind > 1 else ""
    return (
        f"{_who(gone)} left the job{early}; {last_seen(first, now_ns)}; {_waiting(wait)}: let each rank call "
        "join() at its end, or give all of them as many batches"
    )


def _of_late(wait: _Wait, late: Sequence[Rank], now_ns: int) -> str:
    first, one = late[0], len(late) == 1
    does = f"; {first.activity.value}" if one and first.activity.value else ""
    return (
        f"{_who(late)} {'has' if one else 'have'} not called {wait.operation.title}; "
        f"{last_seen(first, now_ns, one)}{does}; {_waiting(wait)}"
    )


def _of_divergence(wait: _Wait, elsewhere: Sequence[Rank], unseen: Sequence[int]) -> Diagnosis:
    """Describe ranks that wait in two operations, each of which lacks the ranks that are in the other.

    If process sets were used in different orders, one of the `unseen` ranks of other hosts may be the cause.
    """
    other = elsewhere[0]
    blocking = _blocks(other, wait)
    assert blocking is not None
    wait_or_waits = "waits" if len(wait.waiting) == 1 else "wait"
    first = f"{_numbered(_numbers_of(wait.waiting))} {wait_or_waits} in {_named(wait.operation)}"
    second = f"{_who([other])} waits in {_named(blocking)}"
    if blocking.process_set != wait.operation.process_set:
        why = "they use two process sets in different orders: let all ranks that are in both begin with the same"
        if unseen:
            where = f"look at the hosts of {_numbered(unseen)}"
            return _about(Kind.UNSEEN, wait, (), f"{first} and {second}: {why}; {where}")
        return _about(Kind.SETS, wait, elsewhere, f"{first} and {second}: {why}")
    if blocking.kind == wait.operation.kind and blocking.name == wait.operation.name:
        why = "one of them has called it more often: the ranks do not take the same number of steps"
    else:
        why = "they take different branches, or call in different orders"
        if (behind := _behind(other, wait.operation)) > 1:
            why = (
                f"rank {other.number} has called the former {behind} times fewer, so it has fewer batches or ended its "
                "loop early: let each rank call join() at its end, or give all of them as many"
            )
    return _about(Kind.DIVERGED, wait, elsewhere, f"{first}, but {second}: {why}")


def _of_nobody_absent(wait: _Wait, ranks: Sequence[Rank], now_ns: int) -> Diagnosis:
    unseen = _unseen(ranks)
    agreed = any(
        each.agreed_ns is not None for rank in wait.waiting for each in rank.pending if _matches(each, wait.operation)
    )
    stopped = [rank for rank in ranks if rank.activity is Activity.STOPPED]
    if stopped:
        return _about(Kind.STOPPED, wait, stopped, f"{_are_stopped(stopped)}; {_waiting(wait)}")
    if unseen and not agreed:
        where = f"look at the hosts of {_numbered(unseen)}"
        return _about(Kind.UNSEEN, wait, (), f"{_waiting(wait)}, and all ranks of this host have come: {where}")
    # Files are read one after the other, so the last rank may have begun the operation after "now".
    operations = [operation for rank in ranks for operation in rank.recording.operations]
    last_ns = max(operation.submitted_ns for operation in operations if _matches(operation, wait.operation))
    if (now_ns - last_ns) / 1e9 < WAITS_FROM_S:
        return Diagnosis(Kind.MOVES, _all_is_well(ranks))
    why = "its data do not arrive; look at the network, and at the machines' load"
    return _about(Kind.DATA, wait, (), f"{_waiting(wait)}, and all have come: {why}")


def _unseen(ranks: Sequence[Rank]) -> list[int]:
    """Return the ranks of other hosts."""
    seen, size = {rank.number for rank in ranks}, ranks[0].recording.size
    return [number for number in range(size) if number not in seen] if len(seen) < size else []


def _about(kind: Kind, wait: _Wait, culprits: Sequence[Rank], sentence: str) -> Diagnosis:
    return Diagnosis(kind, sentence, _numbers_of(culprits), _numbers_of(wait.waiting), wait.waited_s)


# ---- facts


def _matches(one: Operation, other: Operation) -> bool:
    """Return whether these are the same operation, or would be without the difference to report."""
    return (one.process_set, one.name, one.count) == (other.process_set, other.name, other.count) and (
        one.kind == other.kind or bool(one.name)
    )


def _blocks(rank: Rank, wait: _Wait) -> Operation | None:
    """Return the operation in which an absent rank waits for the ranks that wait for it, or None."""
    return next((each for each in rank.pending if not all(other.has_come_to(each) for other in wait.waiting)), None)


def _call(operation: Operation) -> tuple[object, ...]:
    """Return a key that is equal on ranks that make the same call."""
    return operation.kind, operation.process_set, operation.name, operation.count


def _is_new(rank: Rank, other: Operation) -> bool:
    """Return whether the rank's call of this operation has never followed the call before it."""
    calls = [_call(operation)[:-1] for operation in rank.recording.operations]
    pairs = list(pairwise(calls))
    place = next((i for i, each in enumerate(rank.recording.operations) if _matches(each, other)), 0)
    return place > 0 and pairs[place - 1] not in pairs[: place - 1]


def _is_stuck(rank: Rank, wait: _Wait, now_ns: int) -> bool:
    """Return whether the rank has waited in another operation for some time, and not only begun it."""
    blocking = _blocks(rank, wait)
    return blocking is not None and (now_ns - blocking.submitted_ns) / 1e9 >= _STUCK_FROM_S


def _behind(rank: Rank, other: Operation) -> int:
    """Return how many calls the rank is behind in the operation in which another rank waits, or 0 if unknown."""
    if not other.name:
        return 0
    same = [each.count for each in rank.recording.operations if _is_of(each, other)]
    return max(0, other.count - max(same)) if same else 0


def _is_of(one: Operation, other: Operation) -> bool:
    return (one.kind, one.process_set, one.name) == (other.kind, other.process_set, other.name)


# ---- words


def _all_is_well(ranks: Sequence[Rank]) -> str:
    last = [rank.last for rank in ranks if rank.last is not None]
    if not last:
        has = "has" if len(ranks) == 1 else "have"
        return f"{_numbered(_numbers_of(ranks))} {has} begun no operation yet"
    latest = max(last, key=lambda operation: operation.submitted_ns)
    return f"no rank waits for another: the latest operation was {_named(latest)}"


def last_seen(rank: Rank, now_ns: int, is_it: bool = True) -> str:
    """Return a clause about what the rank did last. With `is_it`, the sentence so far is about this rank alone."""
    last, who = rank.last, "it" if is_it else f"rank {rank.number}"
    if last is None:
        return f"{who} has begun no operation"
    if last.ended_ns is None:
        return f"{who} was in {_named(last)}"
    whose = "its last operation" if is_it else f"the last operation of {who}"
    return f"{whose}, {_named(last)}, ended {_seconds((now_ns - last.ended_ns) / 1e9)} ago"


def _waiting(wait: _Wait) -> str:
    verb = "has" if len(wait.waiting) == 1 else "have"
    return f"{_numbered(_numbers_of(wait.waiting))} {verb} waited {_seconds(wait.waited_s)} in {_named(wait.operation)}"


def _named(operation: Operation) -> str:
    return operation.title + operation.place


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0.0):.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _numbers_of(ranks: Sequence[Rank]) -> tuple[int, ...]:
    return tuple(rank.number for rank in ranks)


def _who(ranks: Sequence[Rank]) -> str:
    """Return the ranks as text: "rank 3 (pid 71)" or "ranks 3, 4"."""
    return _numbered(_numbers_of(ranks)) + (f" (pid {ranks[0].recording.pid})" if len(ranks) == 1 else "")


def _numbered(numbers: Sequence[int]) -> str:
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {_list(numbers)}"


def _list(numbers: Iterable[int]) -> str:
    """Return the numbers as text: "0-2, 4-7"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    return ", ".join(parts[:_MOST_NAMED]) + (
        f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    )
