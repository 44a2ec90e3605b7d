"""Gluon's DataLoader, with batches that are shared out to the ranks that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mxnet as mx
import numpy as np
from farandole.plugin.elastic import ElasticLoader, PlannedBatches


class DataLoader(ElasticLoader, mx.gluon.data.DataLoader):  # type: ignore[misc]
    """Gluon's DataLoader, which after a change of the ranks gives what is left of the pass: each sample in one step.

    It takes the arguments of `mxnet.gluon.data.DataLoader`; `batch_size` is of each rank. Give it to the state. A batch
    is recorded when the loop gets it, and not when a worker has loaded it: call `state.commit()` after the step of the
    batch, and before the loop takes the next one.

    All ranks have as many batches, and none is empty: the samples that are left for the last step are shared out
    evenly. Where fewer are left than there are ranks, all ranks take the same ones (`is_common`), so that their average
    gradient is that of one step. See `farandole.elastic.Batches`.

    Example:
        >>> data = mx.gluon.data.SimpleDataset(list(range(10)))
        >>> loader = hvd.elastic.DataLoader(data, batch_size=3, shuffle=True, seed=1)
        >>> state = hvd.elastic.ObjectState(loader=loader, epoch=0)
        >>> loader.set_epoch(state.epoch)
        >>> seen = []
        >>> for batch in loader:
        ...     seen += batch.asnumpy().tolist()
        ...     state.commit()
        >>> sorted(sum(hvd.allgather_object(seen), []))
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    _worker_pool: Any = None  # Gluon's __del__ asks for it, also where this __init__ has failed

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        *,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Load the samples of `dataset`, the same on all ranks.

        Args:
            dataset: with a length, and samples by their indices.
            batch_size: samples of each rank in a step.
            shuffle: another order in each pass, by `seed` and the number of the pass.
            sampler: gives the indices of all ranks for a pass, in place of `shuffle`: the same on all ranks and each
                time, by `set_epoch(epoch)`, which is called before, and its own seed alone.
            last_batch: "keep", or "discard" for leaving out the samples that do not make a whole batch for each rank.
            batch_sampler: likewise gives batches; each rank takes one of them in a step.
            seed: the same on all ranks.
            options: others of Gluon's, such as `num_workers` and `batchify_fn`.

        Raises:
            ValueError: arguments that are missing or exclude each other, or a sampler that shares out itself.
        """
        if batch_size is None and batch_sampler is None:
            raise ValueError("the loader needs the batch_size of a rank, or a batch_sampler")
        if last_batch not in (None, "keep", "discard"):
            raise ValueError(
                f"last_batch={last_batch!r} leaves samples to the next pass, so they could be lost after a change of "
                "the ranks: it can be 'keep' or 'discard'"
            )
        if options.get("auto_reload"):
            raise ValueError("auto_reload=True begins a loop before the program does: leave it out")
        planned = PlannedBatches(
            dataset, batch_size, shuffle, seed, last_batch == "discard", sampler, batch_sampler, (), _permutation
        )
        self._batches = planned.batches
        super().__init__(dataset, batch_sampler=planned, **options)

    def __iter__(self) -> Iterator[Any]:
        """The batches of what is left of the pass; of the next pass, where a loop has ended this one."""
        loop = self._batches.begin()
        return loop.given(super().__iter__())


def _permutation(length: int, seed: int) -> list[int]:
    shuffled: list[int] = np.random.RandomState(seed % 2**32).permutation(length).tolist()
    return shuffled
