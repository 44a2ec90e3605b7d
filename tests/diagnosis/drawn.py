"""The faults of the session `soak_diagnosis`: their kinds, and how one is drawn. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

FRAMEWORKS = ("numpy", "torch", "tensorflow", "mxnet")
_ONE_HOST_OF_8 = 6  # so many of eight jobs run on one host, which is quicker
_STEADY = (180, 220)  # steps: the launcher compares a slower rank with the time before
_NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Kind:
    """A kind of fault, and what must be said about it."""

    name: str
    causes: tuple[str, ...]  # of these one must be named, see statements.py; none: nothing may be said
    forms: int = 1  # ways to bring it about
    least_ranks: int = 2
    most_ranks: int = 8  # fewer where a busy machine would slow other ranks down, too
    needs_hosts: bool = False
    is_mutual: bool = False  # between two ranks nobody can tell which one is wrong
    steps: tuple[int, int] = (5, 40)  # between these it comes
    watched_s: float = 14.0  # how long words are waited for: the launcher's come after 10 s at the latest

    @property
    def is_flat(self) -> bool:
        return not self.causes


KINDS = (
    Kind("order", ("diverged",), is_mutual=True),
    Kind("count", ("diverged", "late"), forms=3, is_mutual=True),
    Kind("shape", ("mismatch",), is_mutual=True),
    Kind("early exit", ("left", "lost"), forms=2),
    Kind("kill", ("killed", "lost")),
    Kind("stop", ("stopped",)),
    Kind("slower", ("slower",), most_ranks=2, steps=_STEADY, watched_s=15.0),
    Kind("slow link", ("network",), most_ranks=4, needs_hosts=True, steps=_STEADY, watched_s=20.0),
    Kind("process sets", ("process sets",), least_ranks=4, is_mutual=True),
    Kind("loader", ("late",), forms=3),
    Kind("exception", ("raised",)),
    Kind("partition", ("network",), needs_hosts=True, watched_s=40.0),
    Kind("flat", ()),
    Kind("jitter", ()),
    Kind("checkpoints", ()),
    Kind("evaluation", ()),
)
BUSY = ("checkpoints", "evaluation")  # on rank 0, while the others wait
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Fault:
    """One fault, as the ranks read it."""

    number: int
    kind: str
    framework: str
    ranks: int
    hosts: int
    victims: tuple[int, ...]
    step: int  # in which it comes
    delay_s: float  # after the beginning of that step, for signals
    form: int
    pause_s: float  # of a step
    sets: tuple[tuple[int, ...], ...] = ()
    every: int = 40  # steps from one checkpoint or evaluation to the next
    busy_s: float = 0.0  # how long that takes
    most_steps: int = _NO_LIMIT

    @property
    def described(self) -> str:
        """For people."""
        return f"{self.kind}, {self.framework}, {self.ranks} ranks on {self.hosts} hosts, rank {self.victims[0]}"

    @property
    def blamed(self) -> frozenset[int]:
        """The ranks that may be named."""
        kind = BY_NAME[self.kind]
        if kind.is_flat:
            return frozenset()
        if kind.name == "process sets" and len(min(self.sets, key=len)) == 2:
            return frozenset(min(self.sets, key=len))
        if self.kind in ("slow link", "partition"):
            return frozenset(range(self.ranks) if self.hosts == 2 else self.ranks_of(self.victim_host))
        return frozenset(range(2) if kind.is_mutual and self.ranks == 2 else self.victims)

    @property
    def per_host(self) -> Sequence[int]:
        """How many ranks each host has."""
        return [len(range(host, self.ranks, self.hosts)) for host in range(self.hosts)]

    @property
    def victim_host(self) -> int:
        """The host of the victim, by its number."""
        return next(host for host in range(self.hosts) if self.victims[0] in self.ranks_of(host))

    def ranks_of(self, host: int) -> range:
        """The ranks of a host: those of the first one come first."""
        first = sum(self.per_host[:host])
        return range(first, first + self.per_host[host])

    def plan(self) -> dict[str, Any]:
        """For trainee.py."""
        return asdict(self)


def _sets(random: Random, ranks: int, victim: int) -> tuple[tuple[int, ...], ...]:
    """Two sets that share two ranks or more, one of them the victim. None has all ranks: that set exists already."""
    others = [rank for rank in range(ranks) if rank != victim]
    random.shuffle(others)
    small = random.choice([2, 3]) if ranks > 4 else 2
    large = random.randint(small + 1, ranks - 1)
    return tuple(tuple(sorted([victim, *others[: size - 1]])) for size in (small, large))


def draw(seed: int, number: int, frameworks: Collection[str], only: Collection[str] = ()) -> Fault:
    """The fault of this number, which does not depend on others: kinds take turns, so that each is there."""
    kinds = [kind for kind in KINDS if not only or kind.name in only]
    random = Random(f"{seed} {number}")
    kind = kinds[number % len(kinds)]
    known = [name for name in FRAMEWORKS if name in frameworks]
    ranks = random.randint(kind.least_ranks, kind.most_ranks)
    hosts = 1
    if kind.needs_hosts or number // len(kinds) % 8 >= _ONE_HOST_OF_8:
        hosts = random.randint(2, min(4, ranks))
    victim = random.randrange(ranks)
    fault = Fault(
        number=number,
        kind=kind.name,
        framework=known[(number // len(kinds) + number) % len(known)],
        ranks=ranks,
        hosts=hosts,
        victims=(victim,),
        step=random.randint(*kind.steps),
        delay_s=random.uniform(0, 0.1),
        form=random.randrange(kind.forms),
        pause_s=0.1 if kind.name in ("slower", "slow link") or kind.is_flat else random.choice([0.02, 0.05, 0.1]),
        sets=_sets(random, ranks, victim) if kind.name == "process sets" else (),
        busy_s=random.uniform(2, 4) if kind.name in BUSY else 0.0,
    )
    return _away_from_launcher(fault, random) if kind.needs_hosts else fault


def _away_from_launcher(fault: Fault, random: Random) -> Fault:
    """A fault of a host is not one of the launcher's host, whose words could reach nobody."""
    changed: Mapping[str, Any] = asdict(fault)
    victim = random.choice([rank for rank in range(fault.ranks) if rank not in fault.ranks_of(0)])
    return Fault(**{**changed, "victims": (victim,)})
