"""The state of a run in a store: what a resume needs, written by rank 0 after each epoch.

Invariant: the checkpoint of a run is whole, see `Store.write_bytes`.
"""

from __future__ import annotations

import errno
from typing import Any

import farandole

from farandole_spark.ml.store import PARTIAL, Store


def read(store: Store, run_id: str) -> bytes | None:
    """The newest checkpoint of a run; None where there is none."""
    path = store.get_checkpoint_path(run_id)
    return store.read(path) if store.saving_runs() and store.exists(path) else None


def write(store: Store, run_id: str, state: bytes) -> None:
    """Replace the checkpoint of a run.

    Raises:
        FarandoleError: the store is full, or cannot be written to; the former checkpoint stays.
    """
    path = store.get_checkpoint_path(run_id)
    try:
        store.write_bytes(path, state)
    except OSError as error:
        raise farandole.FarandoleError(f"the checkpoint {path} was not written: {reason_of(error)}.") from None


def clean(store: Store, run_id: str) -> None:
    """Remove what an interrupted `write` left, and the folder of a run without any file."""
    folder = store.get_localized_path(store.get_run_path(run_id))
    store.delete(store.get_checkpoint_path(run_id) + PARTIAL)
    if store.fs.exists(folder) and not store.fs.find(folder):
        store.delete(folder)


def reason_of(error: OSError) -> str:
    """The reason of a failed write, as the end of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the store is full; remove files from it, or give another one"
    detail: Any = error.strerror or error
    return f"{type(error).__name__}: {detail}"
