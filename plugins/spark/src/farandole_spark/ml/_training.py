"""The parameters of a `fit` that every rank gets, for any framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole_spark.ml._reader import DataSet, Reading, Stream, Transformation, blocks
from farandole_spark.ml._shards import Share
from farandole_spark.ml.store import Store


@dataclass(frozen=True)
class Training:
    """The data, and how they are read. `seed` is the same on all ranks; it names the order of each pass."""

    store: Store
    run_id: str
    train: DataSet
    validation: DataSet
    features: tuple[str, ...]
    labels: tuple[str, ...]
    weight: str | None
    batch_size: int
    validation_batch_size: int
    epochs: int
    steps: int | None
    validation_steps: int | None
    seed: int
    is_shuffled: bool
    window_rows: int | None
    in_memory: bool
    transformation: Transformation | None
    verbose: int
    use_gpu: bool

    def steps_of_epoch(self, size: int) -> int:
        """Batches of each of `size` ranks in an epoch."""
        return self.steps or self._share(self.train, 0, size).batches(self.batch_size)

    def steps_of_validation(self, size: int) -> int:
        """The same for validation; 0 without."""
        if not self.validation.rows:
            return 0
        return self.validation_steps or self._share(self.validation, 0, size).batches(self.validation_batch_size)

    def train_blocks(self, rank: int, size: int, epoch: int, float_type: str | None) -> Stream:
        """The batches of a rank, several at a time and without end, from the first one of an epoch on."""
        first = epoch * self.steps_of_epoch(size)
        how = self._reading(self.batch_size, float_type, self.seed if self.is_shuffled else None)
        return blocks(self.train, self.store.fs, self._share(self.train, rank, size), how, first)

    def validation_blocks(self, rank: int, size: int, float_type: str | None) -> Stream:
        """The same for validation, in the order of the data."""
        how = self._reading(self.validation_batch_size, float_type, None)
        return blocks(self.validation, self.store.fs, self._share(self.validation, rank, size), how)

    def _share(self, data: DataSet, rank: int, size: int) -> Share:
        return Share(data.groups, rank, size)

    def _reading(self, batch_size: int, float_type: str | None, seed: int | None) -> Reading:
        return Reading(batch_size, seed, float_type, self.in_memory, self.window_rows, self.transformation)


@dataclass(frozen=True)
class Trained:
    """The result of rank 0: the model as its framework packs it, and the history of its epochs."""

    model: Any
    history: Any
