"""Checkpoints of a run in a store, which rank 0 writes after each epoch to resume the run.

    first line    JSON: the number of completed epochs, their history, and what the run trains (`Identity`)
    the rest      the state, as the framework's training packs it

Invariant: the checkpoint of a run is complete (`Store.write_bytes`).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import farandole

from farandole_spark.ml.store import PARTIAL, Store

Facts = Mapping[str, tuple[float, float]]
"""Numbers that tell data apart, by name, each with the difference that rounding may make."""
_MARK = b'{"farandole_checkpoint": 1, '


@dataclass(frozen=True)
class Identity:
    """What a run trains, which must be equal to resume it. `parameters` are values that JSON can express."""

    data: Facts
    parameters: Mapping[str, Any]

    def difference(self, parameters: Mapping[str, Any], data: Facts) -> str:
        """Return the name of a parameter that differs, or "data", or "" if nothing differs."""
        own: dict[str, Any] = json.loads(json.dumps(self.parameters))
        for name in sorted({*own, *parameters}):
            if own.get(name) != parameters.get(name):
                return name
        same = self.data.keys() == data.keys() and all(
            abs(number - data[name][0]) <= rounding for name, (number, rounding) in self.data.items()
        )
        return "" if same else "data"


@dataclass(frozen=True)
class Checkpoint:
    """The progress of a run: its completed epochs, their measurements, and the state of the training."""

    epochs: int
    history: Any
    state: bytes


def check(store: Store, run_id: str, identity: Identity, epochs: int) -> None:
    """Raise ArgumentError if a run cannot be resumed because its checkpoint belongs to something else."""
    path = store.get_checkpoint_path(run_id)
    if not (store.saving_runs() and store.exists(path)):
        return
    with store.fs.open(store.get_localized_path(path), "rb") as file:
        head = _head_of(file.readline(), path)
    difference = identity.difference(head["parameters"], head["data"])
    why = f"with another value of {difference}" if difference != "data" else "with other data"
    if not difference and head["epochs"] > epochs:
        difference, why = "epochs", f"for {head['epochs']} epochs, which is more than epochs={epochs}"
    if difference:
        raise farandole.ArgumentError(
            f"the run {run_id!r} was trained {why}, so it cannot be resumed; choose another run_id, or delete {path}."
        )


def read(store: Store, run_id: str) -> Checkpoint | None:
    """Return the newest checkpoint of a run, or None."""
    path = store.get_checkpoint_path(run_id)
    if not (store.saving_runs() and store.exists(path)):
        return None
    line, _, state = store.read(path).partition(b"\n")
    head = _head_of(line, path)
    return Checkpoint(head["epochs"], head["history"], state)


def write(store: Store, run_id: str, identity: Identity, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint of a run. Raises FarandoleError if it cannot be written; then the earlier one stays."""
    path = store.get_checkpoint_path(run_id)
    head = {"epochs": checkpoint.epochs, "history": checkpoint.history, **vars(identity)}
    try:
        store.write_bytes(path, _MARK + json.dumps(head)[1:].encode() + b"\n" + checkpoint.state)
    except OSError as error:
        raise farandole.FarandoleError(f"the checkpoint {path} was not written: {reason_of(error)}.") from None


def _head_of(line: bytes, path: str) -> dict[str, Any]:
    if not line.startswith(_MARK):
        raise farandole.FarandoleError(f"{path} is no checkpoint of this version; choose another run_id, or delete it.")
    return dict(json.loads(line))


def clean(store: Store, run_id: str) -> None:
    """Remove what an interrupted `write` has left, and the folder of a run if it has no files."""
    folder = store.get_localized_path(store.get_run_path(run_id))
    store.delete(store.get_checkpoint_path(run_id) + PARTIAL)
    if store.fs.exists(folder) and not store.fs.find(folder):
        store.delete(folder)


def reason_of(error: OSError) -> str:
    """Return the reason of a failed write, as the end of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the store is full; remove files from it, or give another one"
    detail: Any = error.strerror or error
    return f"{type(error).__name__}: {detail}"
