"""The file of this rank's flight recorder: where it is, and when files are removed.

The core writes it (core/src/operation/flight_recorder.h has the layout), and observe/recorders.py reads it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from farandole._runtime.native import core
from farandole._start import environment
from farandole.observe import recorders
from farandole.observe.processes import is_alive
from farandole.observe.records import Recording, State

# Limits for the files of dead processes: their age, and their number.
_KEPT_NS = 3600 * 10**9
_KEPT_FILES = 64


@dataclass(frozen=True)
class FlightFile:
    """The recording of this rank in one epoch."""

    path: str  # "" if nothing is recorded
    run: str  # the name of the job, equal on all its ranks
    epoch: int


def prepare(size: int, key: bytes, epoch: int) -> FlightFile:
    """Choose the file for a world of this process, and remove old ones.

    A process has only one file: that of the epoch before is not needed any more. A world of one rank has none, because
    it waits for nobody.

    Args:
        size: number of ranks of the world.
        key: the job's key, which the launcher also knows. The name of the job does not reveal it.
        epoch: number of the world in an elastic job.
    """
    run = recorders.name_of_job(key)
    folder = _folder()
    if folder is None:
        return FlightFile("", run, epoch)
    if size == 1:
        if epoch > 0:
            _remove_unfinished(folder, run)
            for path, found in _files_of(folder, run).items():
                if found.epoch < epoch:
                    _remove(path)
        return FlightFile("", run, epoch)
    path = folder / f"{run}.{os.getpid()}.flight"
    try:
        _make(folder)
    except OSError as error:
        core.warn(
            f"operations are not recorded for farandole inspect, since {path} cannot be made in a folder of this user "
            f"alone (mode 0700): {error.strerror}; name another folder in FARANDOLE_FLIGHT_RECORDER, or set it to 0"
        )
        return FlightFile("", run, epoch)
    _sweep(folder)
    return FlightFile(str(path), run, epoch)


def remove_if_all_have_left(ours: FlightFile) -> None:
    """Remove the files of an epoch, and of earlier ones, once all ranks have left in good order. Call it after leaving.

    Each rank records its own end before it looks, so at least the last one sees all. Other files stay for readers.
    """
    if not ours.path:
        return
    files = _files_of(Path(ours.path).parent, ours.run)
    # A file with a later epoch belongs to the job that goes on, or to a dead process of an earlier job with this key.
    later = {path: found for path, found in files.items() if found.epoch > ours.epoch}
    if any(map(is_alive, later.values())):
        return
    if any(found.epoch == ours.epoch and found.state is not State.LEFT for found in files.values()):
        return
    for path in files.keys() - later.keys():
        _remove(path)
    _remove_unfinished(Path(ours.path).parent, ours.run)


def _folder() -> Path | None:
    given = environment.flight_recorder()
    if given == "0":
        return None
    found = recorders.folders(given)
    return next((each for each in found if os.access(each.parent, os.W_OK)), found[-1])


def _files_of(folder: Path, run: str = "") -> dict[Path, Recording]:
    found = recorders.outlines(recorders.paths([folder]))
    return {path: each for path, each in found.items() if run in ("", each.run)}


def _make(folder: Path) -> None:
    """Create the folder. Refuse a folder of another user, who could read the recordings."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, os.strerror(1))


def _sweep(folder: Path) -> None:
    """Remove the files of processes that died long ago, and the oldest of other dead processes.

    So a series of jobs that fail does not fill the file system. A time in the future was recorded before the machine's
    last start.
    """
    _remove_unfinished(folder)
    now_ns = time.monotonic_ns()
    dead = [(path, found.late_ns) for path, found in _files_of(folder).items() if not is_alive(found)]
    ages = sorted((now_ns - late_ns if late_ns <= now_ns else 2**63, path) for path, late_ns in dead)
    for number, (age_ns, path) in enumerate(ages):
        if number >= _KEPT_FILES or age_ns > _KEPT_NS:
            _remove(path)


def _remove_unfinished(folder: Path, run: str = "") -> None:
    """Remove the files of processes that were killed before they had written a readable header."""
    found = recorders.paths([folder], run)
    for path in set(found) - recorders.outlines(found).keys():
        pid = path.stem.rpartition(".")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
