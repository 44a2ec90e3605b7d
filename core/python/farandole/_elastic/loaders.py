"""Base of the frameworks' elastic loaders, which load the batches of a `Batches`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from farandole._api.errors import ArgumentError
from farandole._elastic.batches import Batches, Permutation
from farandole._elastic.sampler import ElasticSampler, shuffled


class ElasticLoader:
    """A loader that a state handles like its `Batches`."""

    _batches: Batches

    @property
    def epoch(self) -> int:
        """Number of the pass over the data."""
        return self._batches.epoch

    @property
    def processed_num(self) -> int:
        """Samples of this pass that all ranks together have done."""
        return self._batches.processed_num

    @property
    def is_common(self) -> bool:
        """Whether all ranks have the same batch, at the end of a pass. Count its samples on one rank only."""
        return self._batches.is_common

    def set_epoch(self, epoch: int) -> None:
        """Begin pass number `epoch`. If that is the current pass, it goes on. See `Batches.set_epoch`."""
        self._batches.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of batches of the current loop, or of the next one."""
        return len(self._batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the pass and its progress."""
        return self._batches.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a saved state, with the present ranks. Raises ValueError if it belongs to other data."""
        self._batches.load_state_dict(state_dict)

    def reset(self) -> None:
        """Divide the rest of the pass among the present ranks, from the next loop on."""
        self._batches.reset()


class PlannedBatches:
    """A batch sampler for loaders that ask for the indices of batches before the program takes the batches.

    Args:
        dataset: data with a length, whose samples are found by index.
        batch_size: see `Batches`. Leave it at its default with a `batch_sampler`.
        shuffle: see `Batches`.
        seed: see `Batches`.
        drop_last: see `Batches`.
        sampler: yields the indices of a pass.
        batch_sampler: yields the batches of a pass, of which each rank takes one in a step.
        shares_out: classes of samplers that divide the samples among ranks themselves.
        permutation: see `Batches`.

    Raises:
        ValueError: two arguments exclude each other, or the sampler divides the samples among ranks itself.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        sampler: Any = None,
        batch_sampler: Any = None,
        shares_out: tuple[type, ...] = (),
        permutation: Permutation = shuffled,
    ) -> None:
        for each in (sampler, batch_sampler, getattr(batch_sampler, "sampler", None)):
            if isinstance(each, (ElasticSampler, Batches, *shares_out)):
                raise ArgumentError(
                    f"sampler: {type(each).__name__} divides the samples among the ranks, which this loader does "
                    "itself: leave it out, and pass shuffle=True and seed="
                )
        if sampler is not None and shuffle:
            raise ArgumentError("give sampler or shuffle, not both: a sampler decides the order of the samples")
        self._has_batches = batch_sampler is not None
        if self._has_batches and (batch_size is not None or shuffle or sampler is not None or drop_last):
            raise ArgumentError(
                "batch_sampler decides what is in a batch: leave out the batch size, shuffle, sampler, and the option "
                "for the last batch"
            )
        own = batch_sampler if self._has_batches else sampler
        order = None if own is None else lambda epoch: _order(own, epoch)
        self.batches = Batches(dataset, batch_size or 1, shuffle, seed, drop_last, order, permutation)

    def __iter__(self) -> Iterator[list[Any]]:
        return (indices[0] if self._has_batches else indices for indices in self.batches.loop)

    def __len__(self) -> int:
        return len(self.batches)


def _order(sampler: Any, epoch: int) -> list[Any]:
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    return list(sampler)
