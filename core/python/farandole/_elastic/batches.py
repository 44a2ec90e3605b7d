"""Divides a pass over the data into batches for the present ranks. Needs no framework.

The order of a pass depends only on its number. Each step takes the next samples of that order for all ranks together,
so a single number, the count of samples done, says what is left. steps.py decides how many samples a step takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole._elastic.sampler import shuffled
from farandole._elastic.steps import Steps
from farandole._start import world

T = TypeVar("T")
Order = Callable[[int], Sequence[Any]]
Permutation = Callable[[int, int], Sequence[int]]


class Loop:
    """One loop over the rest of a pass: this rank's batches, and how many the program has received."""

    def __init__(self, owner: Batches, order: Sequence[Any], begin: int, steps: Steps, rank: int) -> None:
        self.steps, self.begin, self.rank = steps, begin, rank
        self._owner, self._order = owner, order
        self._recorded = 0  # steps

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the indices of each batch. This records nothing, so a loader may read ahead of the program."""
        for number in range(len(self.steps)):
            yield [self._order[self.begin + place] for place in self.steps.places(number, self.rank)]

    def given(self, loaded: Iterable[T]) -> Iterator[T]:
        """Yield the loaded items, one for each batch. A batch counts as done once it is yielded.

        Raises:
            ValueError: another loop has begun, the ranks have changed, or there are too few batches.
        """
        count = 0
        for count, batch in enumerate(loaded, start=1):
            self.record(count)
            yield batch
        if count < len(self):
            raise ArgumentError(
                f"the data ended after {count} of {len(self)} batches of this loop: they must have as many samples as "
                "their length says, on all ranks"
            )
        self.record(count)
        self.end()

    def end(self) -> None:
        """Note that the program has asked for a batch after the last one, so its next loop begins the next pass."""
        if self._recorded == len(self) and self._owner._loop is self:
            self._owner._has_ended, self._owner._loop = True, None

    def record(self, count: int) -> None:
        """Mark the first `count` batches of this loop as done. Raises the same errors as `given`."""
        if self._owner._loop is not self:
            raise ArgumentError(
                "this loop over the data has ended, because another one began or the ranks changed: run one loop at a "
                "time, and begin it inside the function that elastic.run calls"
            )
        if count > len(self):
            raise ArgumentError(f"batch {count} of a loop over the data that has {len(self)} batches")
        if count > self._recorded:
            self._recorded = count
            self._owner.processed_num = self.begin + self.steps.end(count - 1)
            self._owner.is_common = self.steps.is_common(count - 1)


class Batches:
    """Yield this rank's batches as lists of indices, with each sample of a pass in exactly one step.

    This holds even if ranks come or go: after a change, the rest of the pass is divided among the new ranks. A batch
    counts as done when the loop receives it, so commit after its step and before the next batch. As an attribute of a
    state, the object is saved, restored and made equal with the state. The plugins have loaders that work the same way.

    All ranks have the same number of batches of `batch_size` samples, and none is empty. The last step divides the
    remaining samples evenly, so its batches may be smaller, and their sizes may differ by one. If fewer samples than
    ranks are left, all ranks take the same samples (`is_common`): the average of their equal gradients is the gradient
    of one step with these samples.

    Example:
        >>> batches = elastic.Batches(range(10), batch_size=3)
        >>> rank = farandole.rank()  # of two
        >>> for indices in batches:
        ...     print([index - rank for index in indices])
        [0, 2, 4]
        [6, 8]
        >>> batches.processed_num
        10
    """

    is_common = False
    """True for a last batch that all ranks have: count its samples once, say on rank 0 only."""

    def __init__(
        self,
        data: Sized,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        order: Order | None = None,
        permutation: Permutation = shuffled,
    ) -> None:
        """Divide `data` among the ranks, in the order of its indices or shuffled by `seed` and the pass number.

        Args:
            data: anything that has a length, the same on all ranks.
            batch_size: number of samples of each rank in a step.
            shuffle: use a different order in each pass, the same on all ranks.
            seed: seed of the order; must be the same on all ranks, even without `shuffle`.
            drop_last: leave out the samples that do not make a whole batch for each rank. Then no sample is used twice,
                but some are not used.
            order: function from the number of a pass to its indices, which replaces `shuffle` and `seed`. It must
                return the same indices on all ranks and in each call.
            permutation: function that shuffles the numbers below a length by a seed; a framework's own is faster.

        Raises:
            ValueError: the batch size is below 1.
            TypeError: the data have no length, or the batch size is not a number.
        """
        if isinstance(batch_size, bool) or not isinstance(batch_size, int):
            raise ArgumentTypeError(f"batch_size={batch_size!r} must be a number of samples, such as 32")
        if batch_size < 1:
            raise ArgumentError(f"batch_size={batch_size} must be at least 1")
        if order is None and not hasattr(data, "__len__"):
            raise ArgumentTypeError(
                f"a {type(data).__name__} has no length, so its samples cannot be divided again when the ranks change: "
                "give data with len() and indexing, such as a list or an array"
            )
        self.batch_size, self.drop_last = batch_size, drop_last
        self.epoch = 0
        self.processed_num = 0  # samples of this pass that all ranks together have done
        self._data, self._shuffle, self._seed, self._order_of = data, shuffle, seed, order
        self._permutation = permutation
        self._has_ended = False  # a loop came to the end of this pass
        self._is_fresh = True  # no loop has begun since the ranks changed, or a state was loaded
        self._loop: Loop | None = None
        self._order: tuple[int, Sequence[Any], int] | None = None  # number of a pass, its indices, their checksum

    def set_epoch(self, epoch: int) -> None:
        """Begin pass number `epoch`. If that is the current pass, it goes on.

        Without this call, each loop after a complete one begins the next pass.
        """
        if epoch != self.epoch:
            self._go_to(epoch, 0)
        elif self._is_over:
            self._go_to(epoch, self.processed_num if self._is_fresh else 0)

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the batches of the rest of the pass, or of the next pass if a loop has completed this one."""
        loop = self.begin()
        return loop.given(loop)

    def __len__(self) -> int:
        """Return the number of batches of the current loop, or of the next one."""
        if self._loop is not None:
            return len(self._loop)
        return len(self._steps(0 if self._is_over else self.processed_num))

    def begin(self) -> Loop:
        """Begin a loop, for loaders that read batches before the program takes them."""
        if self._is_over:
            self._go_to(self.epoch + 1, 0)
        self._is_fresh = False
        rank = world.rank() if world.is_initialized() else 0
        self._loop = Loop(self, self._indices()[1], self.processed_num, self._steps(self.processed_num), rank)
        return self._loop

    @property
    def loop(self) -> Loop:
        """Return the current loop, or begin one."""
        return self.begin() if self._loop is None else self._loop  # a loop without batches is falsy

    def state_dict(self) -> dict[str, Any]:
        """Return the pass, its progress, and what must be the same on all ranks."""
        _, indices, checksum = self._indices()
        place = {"epoch": self.epoch, "processed_num": self.processed_num, "has_ended": self._has_ended}
        return {**place, "length": len(indices), "order": checksum}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state, with the present ranks.

        Raises:
            ValueError: the state belongs to other data or to another order.
        """
        before = self.epoch, self.processed_num
        self._go_to(state_dict["epoch"], state_dict["processed_num"])
        _, indices, checksum = self._indices()
        problem = _difference(state_dict, len(indices), checksum)
        if problem:
            self._go_to(*before)
            raise ArgumentError(problem)
        self._has_ended = state_dict["has_ended"]
        self.reset()

    def reset(self) -> None:
        """Divide the rest of the pass among the present ranks, from the next loop on."""
        self._is_fresh, self._loop = True, None

    @property
    def _is_over(self) -> bool:
        """Return whether the next loop begins the next pass. After a change of ranks, a complete pass is run again."""
        return self._has_ended or not (self._is_fresh or len(self._steps(self.processed_num)))

    def _go_to(self, epoch: int, processed_num: int) -> None:
        self.epoch, self.processed_num, self._has_ended = epoch, processed_num, False
        self._loop = None

    def _steps(self, processed_num: int) -> Steps:
        left = len(self._indices()[1]) - processed_num
        ranks = world.size() if world.is_initialized() else 1
        return Steps(left, ranks, self.batch_size, self.drop_last)

    def _indices(self) -> tuple[int, Sequence[Any], int]:
        """Return the indices of the whole pass. They are cached, because shuffling is slow."""
        if self._order is None or self._order[0] != self.epoch:
            if self._order_of is not None:
                indices = self._order_of(self.epoch)
                checksum = zlib.crc32(repr(list(indices)).encode())
            else:
                length = len(self._data)
                indices = self._permutation(length, self._seed + self.epoch) if self._shuffle else range(length)
                checksum = zlib.crc32(repr((self._shuffle, self._seed)).encode())
            self._order = self.epoch, indices, checksum
        return self._order


def _difference(state: dict[str, Any], length: int, checksum: int) -> str:
    """Describe the difference, or return "" if there is none."""
    if state.get("length", length) != length:
        return (
            f"the data have {length} samples, but had {state['length']} when their state was saved: use the same data "
            "on all ranks, and when the job starts again"
        )
    if state.get("order") != checksum:  # for example, in the state of an ElasticSampler
        return (
            "the samples are in another order than when their state was saved: give all ranks the same seed, and "
            "samplers whose order depends on set_epoch(epoch) alone"
        )
    if not 0 <= state["processed_num"] <= length:
        return (
            f"the state of the data says that {state['processed_num']} samples are done, but there are only "
            f"{length}: use the data with which the state was saved"
        )
    return ""
