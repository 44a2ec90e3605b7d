"""The samples of a pass over the data that are left, shared out to the ranks there are. Needs no framework.

The order of a pass depends on its number alone, and rank r of n takes every n-th sample from the r-th on. So after each
rank has done k samples the first k * n of the order are done, and one number says which are left for other ranks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence, Sized
from typing import Any

from farandole._api.errors import ArgumentError
from farandole._start import world


class ElasticSampler:
    """The indices of this rank's samples; after a change of the ranks, those of what is left of the pass.

    `record_batch` says after each step what is done. As an attribute of a state the sampler is saved, restored and made
    equal with it. All ranks get as many indices, so some come twice where the samples cannot be divided; `Batches`, and
    the loaders of the plugins, know the size of a batch and give each sample once.

    Example:
        >>> sampler = elastic.ElasticSampler(range(8), shuffle=False)
        >>> list(sampler) == [0 + farandole.rank(), 2 + farandole.rank(), 4 + farandole.rank(), 6 + farandole.rank()]
        True
        >>> sampler.record_batch(batch_idx=0, batch_size=3)  # on each of two ranks
        >>> list(sampler) == [6 + farandole.rank()]
        True
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """Share out `dataset`, in the order of its indices or shuffled by `seed` and the number of the pass.

        Args:
            dataset: anything that has a length, the same on all ranks.
            shuffle: another order in each pass, the same on all ranks.
            seed: the same on all ranks.
        """
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # samples of this pass that are done, by all ranks together
        self._recorded = -1  # the last batch of this loop
        self._done = 0  # of the share
        self._share: Sequence[int] = ()
        self._order: tuple[Any, Sequence[int]] | None = None  # what it was made of, and the indices of the pass
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin pass number `epoch` over the data. The number that it has already changes nothing: the pass goes on."""
        if epoch != self.epoch:
            self.epoch, self.processed_num = epoch, 0
            self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Say that every rank has done one more batch, before the commit of its step.

        Args:
            batch_idx: its number among the batches of this loop over the sampler, as `enumerate` counts them.
            batch_size: samples of each rank in it; the last batch may have fewer.

        Raises:
            ValueError: this batch was recorded already.
        """
        if batch_idx <= self._recorded:
            raise ArgumentError(
                f"record_batch: batch {batch_idx} comes after batch {self._recorded}, which was recorded already: "
                "record each batch once, after its step, by its number in the loop over the data"
            )
        self._recorded = batch_idx
        self._add(batch_size)

    def record_indices(self, indices: Sequence[int]) -> None:
        """Say that this rank has done these samples, its next ones, and each other rank as many.

        Raises:
            ValueError: they are not the next ones that the sampler gave.
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
        """The pass, how far it is, and the length of the data: the same on all ranks."""
        return {"epoch": self.epoch, "processed_num": self.processed_num, "length": len(self.dataset)}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on from there, with the ranks that there are now.

        Raises:
            ValueError: the state is of other data.
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
        """Share out what is left of the pass to the ranks that there are now."""
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
        """This rank's indices of what is left. Where a loop has done all, the pass begins again."""
        if self._has_moved():
            self.reset()
        if self._has_begun and self.processed_num == len(self.dataset):
            self.processed_num = 0
        self._has_begun = True
        self._share_out()
        return iter(self._share)

    def __len__(self) -> int:
        """The number of indices of this loop, or of the first one."""
        if self._has_moved():
            self.reset()
        return len(self._share)

    def _add(self, count: int) -> None:
        if count < 0:
            raise ArgumentError(f"a batch cannot have {count} samples")
        self._done = min(self._done + count, len(self._share))
        self.processed_num = min(self.processed_num + count * self.num_replicas, len(self.dataset))

    def _has_moved(self) -> bool:
        """Returns whether the ranks have changed without a `reset`."""
        return world.is_initialized() and (world.rank(), world.size()) != (self.rank, self.num_replicas)

    def _indices(self) -> Sequence[int]:
        """Of the whole pass; kept, since shuffling takes long and what is left after a change is wanted at once."""
        length = len(self.dataset)
        made_of = length, self.epoch, self.seed, self.shuffle
        if self._order is None or self._order[0] != made_of:
            self._order = made_of, shuffled(length, self.seed + self.epoch if self.shuffle else None)
        return self._order[1]


def shuffled(length: int, seed: int | None) -> Sequence[int]:
    """The numbers below `length`, shuffled by a seed, or in their order."""
    if seed is None:
        return range(length)
    indices = list(range(length))
    random.Random(seed).shuffle(indices)
    return indices
