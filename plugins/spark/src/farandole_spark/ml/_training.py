"""The parameters of a `fit` that every rank gets, whatever the framework."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farandole

from farandole_spark.ml import _checkpoints
from farandole_spark.ml._checkpoints import Checkpoint, Identity
from farandole_spark.ml._reader import Arrays, DataSet, Reading, Stream, Transformation, blocks
from farandole_spark.ml._shards import Share
from farandole_spark.ml.store import Store


@dataclass(frozen=True)
class Training:
    """The data, and how they are read. `seed` is the same on all ranks, and determines the order of each pass.

    For `kept` see `Reading`; it is empty until a rank reads.
    """

    store: Store
    run_id: str
    identity: Identity
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
    kept: dict[str, Arrays] | None
    transformation: Transformation | None
    verbose: int
    use_gpu: bool

    def seed_of(self, epoch: int, rank: int) -> int:
        """Return a seed for a rank's random numbers in an epoch, which is the same in a resumed run."""
        return zlib.crc32(f"{self.seed} {epoch} {rank}".encode())

    def checkpoint(self) -> Checkpoint | None:
        """Return the run's checkpoint, as rank 0 finds it, or None. Collective."""
        found = _checkpoints.read(self.store, self.run_id) if farandole.rank() == 0 else None
        return farandole.broadcast_object(found, 0)

    def save(self, epochs: int, history: Any, state: bytes, folder: Path | None = None) -> None:
        """Save a checkpoint and the files of a folder. Raises FarandoleError; see `_checkpoints.write`."""
        _checkpoints.write(self.store, self.run_id, self.identity, Checkpoint(epochs, history, state))
        if folder is not None and folder.exists():
            self.store.sync_fn(self.run_id)(str(folder))

    def steps_of_epoch(self, size: int) -> int:
        """Return the number of batches of each of `size` ranks in an epoch."""
        return self.steps or Share(self.train.groups, 0, size).batches(self.batch_size)

    def steps_of_validation(self, size: int) -> int:
        """Return the same for validation, or 0 without validation."""
        if not self.validation.rows:
            return 0
        return self.validation_steps or Share(self.validation.groups, 0, size).batches(self.validation_batch_size)

    def train_blocks(self, rank: int, size: int, epoch: int, float_type: str | None) -> Stream:
        """Yield the batches of a rank in blocks, endlessly, from the first batch of an epoch on."""
        first = epoch * self.steps_of_epoch(size)
        how = self._reading(self.batch_size, float_type, self.seed if self.is_shuffled else None)
        return blocks(self.train, self.store.fs, Share(self.train.groups, rank, size), how, first)

    def validation_blocks(self, rank: int, size: int, float_type: str | None) -> Stream:
        """Yield the same for validation, in the order of the data."""
        how = self._reading(self.validation_batch_size, float_type, None)
        return blocks(self.validation, self.store.fs, Share(self.validation.groups, rank, size), how)

    def _reading(self, batch_size: int, float_type: str | None, seed: int | None) -> Reading:
        return Reading(batch_size, seed, float_type, self.kept, self.window_rows, self.transformation)


@dataclass(frozen=True)
class Trained:
    """The result of rank 0: the model as its framework packs it, and the history of its epochs."""

    model: Any
    history: Any
