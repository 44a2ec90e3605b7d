"""Divides the rest of a pass over the data among the present ranks. Needs no framework.

The order of a pass depends only on its number, and rank r of n takes every n-th sample, beginning with the r-th. So
when each rank has done k samples, the first k * n of the order are done, and that number says which samples are left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence, Sized
from typing import Any

from farandole._api.errors import ArgumentError
from farandole._start import world


class ElasticSampler:
    """Yield the indices of this rank's samples; after a change of the ranks, of its part of the rest of the pass.

    Call `record_batch` after each step. As an attribute of a state, the sampler is saved, restored and made equal with
    the state. All ranks get the same number of indices, so some samples come twice if they do not divide evenly.
    `Batches` and the loaders of the plugins know the size of a batch, and give each sample once.

    Example:
        >>> sampler = elastic.ElasticSampler(range(8), shuffle=False)
        >>> list(sampler) == [0 + farandole.rank(), 2 + farandole.rank(), 4 + farandole.rank(), 6 + farandole.rank()]
        True
        >>> sampler.record_batch(batch_idx=0, batch_size=3)  # on each of two ranks
        >>> list(sampler) == [6 + farandole.rank()]
        True
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """Divide `dataset` among the ranks, in the order of its indices or shuffled by `seed` and the pass number.

        Args:
            dataset: anything that has a length, the same on all ranks.
            shuffle: use a different order in each pass, the same on all ranks.
            seed: seed of the order; must be the same on all ranks.
        """
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # samples of this pass that all ranks together have done
        self._recorded = -1  # the last batch of this loop
        self._done = 0  # samples of this rank's share that are done
        self._share: Sequence[int] = ()
        self._order: tuple[Any, Sequence[int]] | None = None  # what it was made from, and the indices of the pass
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin pass number `epoch` over the data. If that is the current pass, it goes on."""
        if epoch != self.epoch:
            self.epoch, self.processed_num = epoch, 0
            self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every rank has done one more batch. Call it before the commit of the step.

        Args:
            batch_idx: number of the batch in this loop over the sampler, as `enumerate` counts.
            batch_size: number of samples of each rank in the batch; the last batch may have fewer.

        Raises:
            ValueError: this batch is already recorded.
        """
        if batch_idx <= self._recorded:
            raise ArgumentError(
                f"record_batch: batch {batch_idx} comes after batch {self._recorded}, which was recorded already: "
                "record each batch once, after its step, by its number in the loop over the data"
            )
        self._recorded = batch_idx
        self._add(batch_size)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Record that this rank has done these samples, its next ones, and each other rank the same number.

        Raises:
            ValueError: these are not the next samples that the sampler gave.
        """
        given, begin = [int(each) for each in indices], self._done
        expected = list(self._share[begin : begin + len(given)])
        if given != expected:
            pairs = zip(given, expected, strict=False)
            at = next((i for i, (one, other) in enumerate(pairs) if one != other), len(expected))
            is_old = given[at] in self._share[:begin]
            raise ArgumentError(
                f"record_indices: sample {given[at]} {'was recorded already' if is_old else 'is not the next one'}: "
                "record what the sampler gave, once, in its order"
            )
        self._add(len(given))

    def state_dict(self) -> dict[str, int]:
        """Return the pass, its progress and the length of the data, which are the same on all ranks."""
        return {"epoch": self.epoch, "processed_num": self.processed_num, "length": len(self.dataset)}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue from a saved state, with the present ranks.

        Raises:
            ValueError: the state belongs to other data.
        """
        length, processed = len(self.dataset), state_dict["processed_num"]
        before = state_dict.get("length", length)
        if before != length:
            raise ArgumentError(
                f"the sampler's data have {length} samples, but had {before} when its state was saved: use the same "
                "data on all ranks, and when the job starts again"
            )
        if not 0 <= processed <= length:
            raise ArgumentError(
                f"the state of the sampler says that {processed} samples are done, but its data have only {length}: "
                "use the data with which the state was saved"
            )
        self.epoch, self.processed_num = state_dict["epoch"], processed
        self.reset()

    def reset(self) -> None:
        """Divide the rest of the pass among the present ranks."""
        self.rank, self.num_replicas = (world.rank(), world.size()) if world.is_initialized() else (0, 1)
        self._has_begun = False
        self._share_out()

    def _share_out(self) -> None:
        left = self._indices()[self.processed_num :]
        each = -(-len(left) // self.num_replicas)
        mine = left[self.rank :: self.num_replicas]
        if len(mine) < each:
            mine = [*mine, left[self.rank % len(left)]]
        self._share, self._recorded, self._done = mine, -1, 0

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's indices of the rest of the pass. If a loop has done all of them, the pass begins again."""
        if self._has_moved():
            self.reset()
        if self._has_begun and self.processed_num == len(self.dataset):
            self.processed_num = 0
        self._has_begun = True
        self._share_out()
        return iter(self._share)

    def __len__(self) -> int:
        """Return the number of indices of this loop, or of the first one."""
        if self._has_moved():
            self.reset()
        return len(self._share)

    def _add(self, count: int) -> None:
        if count < 0:
            raise ArgumentError(f"a batch cannot have {count} samples")
        self._done = min(self._done + count, len(self._share))
        self.processed_num = min(self.processed_num + count * self.num_replicas, len(self.dataset))

    def _has_moved(self) -> bool:
        """Return whether the ranks have changed without a `reset`."""
        return world.is_initialized() and (world.rank(), world.size()) != (self.rank, self.num_replicas)

    def _indices(self) -> Sequence[int]:
        """Return the indices of the whole pass. They are cached, because shuffling is slow."""
        length = len(self.dataset)
        made_of = length, self.epoch, self.seed, self.shuffle
        if self._order is None or self._order[0] != made_of:
            self._order = made_of, shuffled(length, self.seed + self.epoch if self.shuffle else None)
        return self._order[1]


def shuffled(length: int, seed: int | None) -> Sequence[int]:
    """Return the numbers below `length`, shuffled by `seed`, or in order without one."""
    if seed is None:
        return range(length)
    indices = list(range(length))
    random.Random(seed).shuffle(indices)
    return indices
