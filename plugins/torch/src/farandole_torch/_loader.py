"""PyTorch's DataLoader, with batches shared out among the current ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from farandole.plugin.elastic import ElasticLoader, PlannedBatches
from torch.utils.data import Dataset, DistributedSampler, IterableDataset, Sampler


class DataLoader(ElasticLoader, torch.utils.data.DataLoader):  # type: ignore[misc, type-arg, unused-ignore]
    """PyTorch's DataLoader that continues an interrupted pass after the ranks have changed: each sample is in one step.

    It takes the arguments of `torch.utils.data.DataLoader`; `batch_size` is the batch size of each rank. Pass the
    loader to the state. A batch is recorded when the loop gets it, not when a worker has loaded it: call
    `state.commit()` after the step of the batch, and before the loop takes the next one.

    All ranks have the same number of batches, and none is empty: the samples left for the last step are shared out
    evenly. If fewer are left than there are ranks, all ranks take the same ones (`is_common`), so that the average of
    their gradients is the gradient of those samples. See `farandole.elastic.Batches`.

    Example:
        >>> loader = hvd.elastic.DataLoader(torch.arange(10), batch_size=3, shuffle=True, seed=1, num_workers=2)
        >>> state = hvd.elastic.ObjectState(loader=loader, epoch=0)
        >>> loader.set_epoch(state.epoch)
        >>> seen = []
        >>> for batch in loader:
        ...     seen += batch.tolist()
        ...     state.commit()
        >>> sorted(sum(hvd.allgather_object(seen), []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[Any] | Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        drop_last: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Load the samples of `dataset`, which must be the same on all ranks.

        Args:
            dataset: has a length, and returns samples by their indices.
            batch_size: samples of each rank in a step.
            shuffle: use another order in each pass, determined by `seed` and the number of the pass.
            sampler: gives the indices of all ranks for a pass, in place of `shuffle`: the same on all ranks and each
                time, by `set_epoch(epoch)`, which is called before, and its own seed alone.
            batch_sampler: likewise gives batches; each rank takes one of them in a step.
            num_workers: processes that load batches ahead.
            collate_fn: makes a batch from a list of samples.
            drop_last: leave out the samples that do not make a whole batch for each rank.
            seed: the same on all ranks.
            options: other options of PyTorch's DataLoader, such as `persistent_workers` and `pin_memory`.

        Raises:
            ValueError: arguments that exclude each other, batches in no order, or a sampler that shares out itself.
            TypeError: the data cannot be read by index.
        """
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "an IterableDataset cannot begin in the middle, so it cannot say what is left after a change of the "
                "ranks: give a dataset with __len__ and __getitem__, such as one of the places where samples are stored"
            )
        if batch_size is None:
            raise ValueError("batch_size=None gives no batches to share out: give a number, or a batch_sampler")
        if not options.get("in_order", True):
            raise ValueError(
                "in_order=False gives batches in an order that other ranks do not know, so samples would be lost after "
                "a change of the ranks: leave it out"
            )
        given = None if batch_sampler is not None and batch_size == 1 else batch_size
        others = sampler, batch_sampler, (DistributedSampler,), _permutation
        planned = PlannedBatches(dataset, given, bool(shuffle), seed, drop_last, *others)
        self._batches = planned.batches
        super().__init__(dataset, batch_sampler=planned, num_workers=num_workers, collate_fn=collate_fn, **options)
        self.__dict__.update(batch_size=given, drop_last=drop_last)  # PyTorch's loader lets nobody set these

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override, unused-ignore]
        """Yield the batches that are left of the pass, or those of the next pass after a loop has ended this one."""
        loop = self._batches.begin()
        return loop.given(super().__iter__())


def _permutation(length: int, seed: int) -> list[int]:
    shuffled: list[int] = torch.randperm(length, generator=torch.Generator().manual_seed(seed)).tolist()
    return shuffled
