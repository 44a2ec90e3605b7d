"""Checkpoints that one rank writes or reads for all: no rank sees half a file, and all fail together.

    root         save(a path in a hidden folder beside the target) -> fsync -> rename -> its outcome to all
    other ranks  wait for the outcome

If a rank is killed at any moment, either the old file or the new file is there.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

from farandole._api.errors import ArgumentError, ArgumentTypeError, FarandoleError
from farandole._api.objects import broadcast_object, pickled
from farandole._start import world

S = TypeVar("S")
_Outcome = tuple[bytes | bytearray, Exception | None]  # the pickled result, or what the root raised


def save_checkpoint(path: str | os.PathLike[str], save: Callable[[str], object], *, root_rank: int = 0) -> None:
    """Write a file on rank `root_rank`, and return on every rank once it is complete and on the disk.

    `save` writes to another name in the same folder, which replaces `path` at the end, so that readers find the earlier
    file or the new one, whatever ends the job. Every rank calls it.

    Args:
        path: the file; its folder is made where it is missing. It may be a folder that `save` makes, if there is none.
        save: writes to the path that it is given, whose last part is that of `path`: `model.save`, or
            `lambda path: torch.save(state, path)`. Called on the root only, so it makes no call that all ranks make.
        root_rank: which rank writes; what the others give as `path` and `save` does not count.

    Raises:
        Exception: what `save` raised, or what stopped the write, such as an OSError of a full disk; on every rank.

    Example:
        >>> import pathlib, tempfile
        >>> folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
        >>> hvd.save_checkpoint(f"{folder}/epoch", lambda path: pathlib.Path(path).write_text("3"))
        >>> pathlib.Path(f"{folder}/epoch").read_text()
        '3'
    """
    by_root("save_checkpoint", lambda: _write(Path(path), save), root_rank)


def load_checkpoint(path: str | os.PathLike[str], load: Callable[[str], S], *, root_rank: int = 0) -> S:
    """Read a file on rank `root_rank`, and return the result on every rank. The other ranks do not need the file.

    Every rank calls it. If the file is missing, FileNotFoundError is raised on every rank, so all can start afresh.

    Args:
        path: the file.
        load: reads it, such as `lambda path: torch.load(path, map_location="cpu")`; on the root only. Its result
            travels pickled; for a large model, load on the root and `broadcast_parameters`.
        root_rank: which rank reads.

    Raises:
        Exception: what `load` raised; on every rank.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "epoch")  # of this rank alone
        >>> _ = file.write_text("3") if hvd.rank() == 0 else None
        >>> hvd.load_checkpoint(file, lambda path: pathlib.Path(path).read_text())
        '3'
    """
    return by_root("load_checkpoint", lambda: load(os.fspath(path)), root_rank)


def by_root(call: str, work: Callable[[], S], root_rank: int) -> S:
    """Call `work` on the root. Returns its result, or raises its exception, on all ranks. Collective."""
    outcome: _Outcome | None = None
    result: S | None = None
    if world.rank() == root_rank:
        try:
            result = work()
            outcome = pickled(result), None
        except Exception as error:
            outcome = b"", error
    payload, failure = _exchanged(outcome, root_rank)
    if failure is None:
        return cast(S, result if outcome else pickle.loads(payload))
    if outcome is not None:
        raise failure
    raise failure from FarandoleError(f"rank {root_rank} raised this in {call}; no rank continued")


def _exchanged(outcome: _Outcome | None, root_rank: int) -> _Outcome:
    sent = outcome
    if outcome and outcome[1] is not None:
        from farandole._runtime import pickling  # cloudpickle, which imports of farandole do without

        error = outcome[1]  # some classes cannot be unpickled
        travels = bool(pickling.dumps_error(error))
        sent = b"", error if travels else FarandoleError(f"{type(error).__name__}: {error}")
    received = broadcast_object(sent, root_rank)
    return outcome or received


def _write(target: Path, save: Callable[[str], object]) -> None:
    import shutil  # with tempfile, 15 modules that `import farandole` does without
    import tempfile

    if not callable(save):
        raise ArgumentTypeError(
            f"save_checkpoint takes a function that writes to a path, not {type(save).__name__}: give it, say, "
            "lambda path: torch.save(state, path)"
        )
    if not target.name:
        raise ArgumentError(f"save_checkpoint needs the path of a file, not {str(target)!r}")
    folder = target.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=folder))
    try:
        written = partial / target.name
        save(str(written))
        if not written.exists():
            others = ", ".join(sorted(each.name for each in partial.iterdir())) or "nothing"
            raise ArgumentError(
                f"save_checkpoint's function should have written {target.name}, but wrote {others}: let it write one "
                "file, or one folder, at the path that it gets"
            )
        _to_disk(written)
        written.replace(folder / target.name)
        sync(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _to_disk(written: Path) -> None:
    """Sync a file; or all files of a folder, and then the folders."""
    for parent, _, names in os.walk(written, topdown=False):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))
    if not written.is_dir():
        sync(written)


def sync(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(*([OSError] if path.is_dir() else [])):  # some file systems cannot sync a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
