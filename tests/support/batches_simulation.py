"""Ranks of one process that train on batches of numbers, while others are lost and join. One seed is one history.

States and loaders are real, the core's or a framework's; the world, the exchange and the launcher are simulated.
A state carries the samples of its steps, so what the state that goes on has seen is what counts.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from farandole._elastic.loaders import ElasticLoader, PlannedBatches
from farandole.elastic import Batches, ObjectState


class Place:
    """The world, as the rank sees it whose turn it is."""

    def __init__(self) -> None:
        self.place = 0, 1

    def rank(self) -> int:
        return self.place[0]

    def size(self) -> int:
        return self.place[1]

    def is_initialized(self) -> bool:
        return True


class Violation(AssertionError):
    """A history that must not be."""


class Loader(ElasticLoader):
    """Loads batches as the frameworks' loaders do, some of them before the loop takes them."""

    def __init__(self, planned: PlannedBatches, read_ahead: int) -> None:
        self._planned, self._batches, self._read_ahead = planned, planned.batches, read_ahead

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches.begin().given(_ahead(self._planned, self._read_ahead))


@dataclass
class Plan:
    """How the ranks of one history train.

    `says_epoch`: they call set_epoch. `asks_at_the_end`: they ask for a batch after the last one. `has_loader`: a
    loader is between the program and its Batches.
    """

    length: int
    batch_size: int
    drop_last: bool
    says_epoch: bool
    asks_at_the_end: bool
    commit_interval: int
    has_loader: bool
    read_ahead: int
    fault_rate: float
    most_ranks: int


def drawn(dice: random.Random) -> Plan:
    says_epoch = dice.random() < 0.7
    return Plan(
        length=dice.choice([dice.randint(1, 12), dice.randint(1, 90)]),
        batch_size=dice.choice([1, 2, 3, dice.randint(1, 12)]),
        drop_last=dice.random() < 0.1,
        says_epoch=says_epoch,
        asks_at_the_end=not says_epoch or dice.random() < 0.7,
        commit_interval=dice.choice([1, 1, 2, 5]),
        has_loader=dice.random() < 0.7,
        read_ahead=dice.choice([0, 0, 2, 6]),
        fault_rate=dice.choice([0.1, 0.3, 0.5]),
        most_ranks=dice.randint(2, 9),
    )


def state_of_core(plan: Plan, seed: int) -> ObjectState:
    """A new rank's state, whose `data` are the core's."""
    given = range(plan.length), plan.batch_size, True, seed, plan.drop_last
    data = Loader(PlannedBatches(*given), plan.read_ahead) if plan.has_loader else Batches(*given)
    return ObjectState(data=data, epoch=0, seen=[])


@dataclass
class History:
    """Runs `changes` changes of the ranks, and checks each pass.

    `new_state`: makes the state of a new rank. `read`: the samples of a batch.
    """

    seed: int
    world: Place
    changes: int
    new_state: Callable[[Plan, int], Any] = state_of_core
    read: Callable[[Any], list[int]] = list
    plan: Plan = field(init=False)
    passes: int = 0
    commons: int = 0

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.plan = drawn(self.dice)
        self.ranks = [self._new_rank() for _ in range(self.dice.randint(1, self.plan.most_ranks))]

    def run(self) -> None:
        for _ in range(self.changes):
            self._sync()
            self._train()

    def _new_rank(self) -> Any:
        return self.new_state(self.plan, self.seed)

    def _each(self) -> Iterator[Any]:
        """Every rank, while the world is as it sees it."""
        for rank, state in enumerate(self.ranks):
            self.world.place = rank, len(self.ranks)
            yield state

    def _sync(self) -> None:
        """As `run` does after a change: callbacks, then everybody takes the state of the rank with the most commits."""
        for state in self._each():
            state.on_reset()
            if not state._is_saved:
                state.save()
        root = max(self.ranks, key=lambda state: state._commits)
        sent = pickle.dumps({name: root._handler(name).outline()[0] for name in root._names})
        for state in self._each():
            if state is not root:
                for name, outline in pickle.loads(sent).items():
                    state._handler(name).receive(outline)
                    state._handler(name).received()
                state._commits = root._commits
            state.save()

    def _train(self) -> None:
        """Until the ranks change."""
        while True:
            for state in self._each():
                if self.plan.says_epoch:
                    state.data.set_epoch(state.epoch)
            if self._dies_here(0.02) or self._loop() or self._changes_at_the_end():
                return
            self._check_pass()
            if self._dies_here(0.1):
                return

    def _loop(self) -> bool:
        """One loop over the data. Returns whether it was interrupted."""
        loops = [map(self.read, state.data) for state in self._each()]
        lengths = {len(state.data) for state in self._each()}
        for number in range(max(lengths) + 1):
            if lengths == {number} and not self.plan.asks_at_the_end:
                return False
            batches = []
            for _, loop in zip(self._each(), loops, strict=True):
                batches.append(next(loop, None))
            if None in batches:
                if any(batches) or lengths != {number}:
                    raise Violation(f"step {number} of {lengths}: {batches}")
                return False
            self._step(batches)
            if self.dice.random() < self.plan.fault_rate:
                return self._fault()
            if number % self.plan.commit_interval == 0:
                self._commit(self.ranks)
        raise Violation(f"more than {lengths} steps")

    def _step(self, batches: list[list[int]]) -> None:
        common = {state.data.is_common for state in self.ranks}
        if len(common) > 1 or len({state.data.processed_num for state in self.ranks}) > 1:
            raise Violation("the ranks disagree")
        if not all(0 < len(batch) <= self.plan.batch_size for batch in batches):
            raise Violation(f"batches of {[len(batch) for batch in batches]}, and not of {self.plan.batch_size}")
        if common == {True}:
            self.commons += 1
            if any(batch != batches[0] for batch in batches):
                raise Violation(f"a common step of {batches}")
            batches = batches[:1]
        for state in self.ranks:
            state.seen += [sample for batch in batches for sample in batch]

    def _commit(self, states: Iterable[Any]) -> None:
        for state in states:
            state.save()
            state._commits += 1

    def _fault(self) -> bool:
        """After a step. A loss before any commit, or in the midst of it; or a commit that tells of a change."""
        kind = self.dice.choice(["loss", "loss in a commit", "change"])
        if kind == "change":
            self._commit(self.ranks)
            self._lose(self.dice.randint(0, len(self.ranks) - 1))
            self._join()
            return True
        if kind == "loss in a commit":
            self._commit(self.dice.sample(self.ranks, self.dice.randint(1, len(self.ranks))))
        return self._dies_here(1.0)

    def _changes_at_the_end(self) -> bool:
        """A change that is told after the loop, and before the program has counted the pass."""
        if not self.plan.says_epoch or self.dice.random() > 0.1:
            return False
        self._join()
        return True

    def _dies_here(self, rate: float) -> bool:
        if self.dice.random() >= rate:
            return False
        self._lose(self.dice.randint(1, max(1, len(self.ranks) - 1)))
        for state in self._each():
            state.restore()
        if self.dice.random() < 0.5:
            self._join()
        return True

    def _lose(self, count: int) -> None:
        """That many at random; one is left."""
        for _ in range(min(count, len(self.ranks) - 1)):
            self.ranks.pop(self.dice.randrange(len(self.ranks)))

    def _join(self) -> None:
        for _ in range(self.dice.randint(0, self.plan.most_ranks - len(self.ranks))):
            self.ranks.insert(self.dice.randint(0, len(self.ranks)), self._new_rank())

    def _check_pass(self) -> None:
        for state in self._each():
            times = Counter(state.seen)
            twice = [sample for sample, count in times.items() if count > 1]
            lost = sorted(set(range(self.plan.length)) - set(times))
            if self.plan.drop_last:
                lost = lost if len(lost) >= self.plan.batch_size * len(self.ranks) else []
            if twice or lost:
                raise Violation(f"seed {self.seed}: pass {state.epoch} has lost {lost} and seen {twice} twice")
            state.seen, state.epoch = [], state.epoch + 1
        self.passes += 1


def _ahead(batches: Iterable[list[int]], count: int) -> Iterator[list[int]]:
    loaded: deque[list[int]] = deque()
    for batch in batches:
        loaded.append(batch)
        if len(loaded) > count:
            yield loaded.popleft()
    yield from loaded
