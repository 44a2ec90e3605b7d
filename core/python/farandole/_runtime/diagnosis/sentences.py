"""The text of warnings and errors about waits. All ranks raise an error, so its text must make sense on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from farandole._runtime.diagnosis.delays import Delay
from farandole._runtime.diagnosis.facts import UNKNOWN_RANKS, Need, Wait

_MOST_NAMED = 4


class LastStack(NamedTuple):
    """A rank's last answer."""

    frame: str  # the innermost frame of the user's program
    seen: float
    calls: Mapping[str, str]  # by title: the calls that it waits in


class End(NamedTuple):
    """Why the job ends; culprit: the rank to blame, or -1."""

    why: str
    culprit: int


class Sentences:
    """Writes the messages of one rank."""

    def __init__(self, rank: int, title_of_rank: Callable[[int], str]) -> None:
        self.rank = rank
        self.title_of_rank = title_of_rank
        self.last_stacks: dict[int, LastStack] = {}

    def warning(self, delay: Delay, needed: Iterable[Need]) -> str:
        """Warn that ranks are late."""
        assert delay.first is not None
        is_one = len(delay.ranks) == 1 and delay.ranks[0] != UNKNOWN_RANKS
        whose = "its" if is_one else "their"
        look = f"look at {whose} output first; " if delay.ranks[0] >= UNKNOWN_RANKS else ""
        return (
            f"{self._names(delay.ranks, delay.first)} {'has' if is_one else 'have'} kept {delay.title} waiting for "
            f"{_seconds(delay.first.waited_ms)}{self._how_they_need_us(delay.ranks, needed)}; {look}"
            "raise FARANDOLE_WARN_AFTER if that is normal"
        )

    def stacks(self, rank: int, stacks: str) -> str:
        """Show where a late rank is."""
        return f"that is where {self.title_of_rank(rank)} is, by thread, innermost call first:\n{stacks.rstrip()}"

    def deadline(self, wait: Wait, needed: Iterable[Need], now: float) -> End:
        """Report a wait that is beyond the limit."""
        names = self._names(wait.missing, wait).removesuffix(",")  # the clause ends here
        how = self._how_they_need_us(wait.missing, needed)
        why = (
            f"{wait.title} has waited {_seconds(wait.waited_ms)} on rank {self.rank} for {names}{how}"
            f"{self._stacks_since(now - wait.waited_ms / 1000)}; raise FARANDOLE_TIMEOUT if that is normal"
        )
        return End(why, -1 if how else max(-1, wait.missing[0]))

    def deadlock(self, wait: Wait, missing: Sequence[int], other: int, need: Need) -> End:
        """Report that `other` waits for this rank in `need`, and neither can do anything else.

        `missing`: the ranks that this rank's `wait` lacks.
        """
        here = _Side(self.rank, wait.call, len(missing) + 1 == wait.set_size, not wait.is_named)
        call = self._call_of(other, need.title)
        there = _Side(other, call, len(need.here) == 1, need.title.startswith("unnamed "))
        odd = _odd_one(here, there)
        rule = "every rank must make both calls, in the same order"
        if odd:
            rule = f"every rank must make each call, and only rank {odd.rank} has made {odd.call}"
        why = (
            f"rank {here.rank} waits in {here.call} for {self.title_of_rank(other)}, which waits in {there.call} for "
            f"rank {here.rank}, and neither has a thread that could still call what the other needs: {rule}"
        )
        return End(why, odd.rank if odd else -1)

    def _how_they_need_us(self, ranks: Sequence[int], needed: Iterable[Need]) -> str:
        """Return ", while rank 1 waits for rank 0 ..." if one of these ranks waits for this one, else ""."""
        if (found := need_of(ranks, needed)) is None:
            return ""
        waiting, need = found
        return (
            f", while rank {waiting} waits for rank {self.rank} in {self._call_of(waiting, need.title)}: "
            "every rank must make the same calls, in the same order"
        )

    def _call_of(self, rank: int, title: str) -> str:
        """Return the call of another rank's operation if the rank has sent it, else the title."""
        return self.last_stacks[rank].calls.get(title, title) if rank in self.last_stacks else title

    def _names(self, ranks: Sequence[int], wait: Wait) -> str:
        if ranks[0] < 0:
            return wait.who
        names = ", ".join(self.title_of_rank(rank) for rank in ranks[:_MOST_NAMED])
        return names + (f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else "")

    def _stacks_since(self, begin: float) -> str:
        """List where ranks were last seen. Answers from before `begin` are about other waits, and left out."""
        stacks = sorted(self.last_stacks.items())
        return "".join(f"; rank {rank} was last seen in {each.frame}" for rank, each in stacks if each.seen >= begin)


def need_of(ranks: Iterable[int], needed: Iterable[Need]) -> tuple[int, Need] | None:
    """Find one of these ranks that waits for this rank, and the operation."""
    wanted = set(ranks)
    return next(((rank, need) for need in needed for rank in need.here if rank in wanted), None)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3g} s"


class _Side(NamedTuple):
    """One of the two calls of a deadlock."""

    rank: int  # a rank that waits in it
    call: str
    is_alone: bool  # no other rank of the set has arrived
    is_unnamed: bool


def _odd_one(one: _Side, other: _Side) -> _Side | None:
    """Guess the call that is wrong: it should have been made by all ranks or by none. None if that is unclear.

    It is the call that only one rank has made, while several are in the other. With two ranks, each is alone; then it
    is the one without a name, since calls that all ranks make in each step, such as gradients, usually have a name.
    """
    if one.is_alone != other.is_alone:
        return one if one.is_alone else other
    if one.is_alone and one.is_unnamed != other.is_unnamed:
        return one if one.is_unnamed else other
    return None
