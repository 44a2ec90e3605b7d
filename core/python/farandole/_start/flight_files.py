"""The file of this rank's flight recorder: where it is, and what is removed when.

The core writes it (core/src/operation/flight_recorder.h has the layout), and `observe` reads it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from farandole._runtime.native import core
from farandole._start import environment

_RUN_DIGITS = 12
_MAGIC = b"FRDFLT02"
_HEADER = struct.Struct("<8s12xi8xII40xq24x16s")  # magic, process, state, epoch, late_ns, run
_LEFT = 2  # the state of a rank that has left in good order
# Of processes that are dead: so long, and so many files.
_KEPT_NS = 3600 * 10**9
_KEPT_FILES = 64


@dataclass(frozen=True)
class FlightFile:
    """The recording of this rank in one epoch."""

    path: str  # "": nothing is recorded
    run: str  # the name of the job, equal on all its ranks
    epoch: int


@dataclass(frozen=True)
class _Found:
    path: Path
    pid: int
    state: int
    epoch: int
    late_ns: int
    run: str

    def is_of_dead(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return self.pid > 0
        except OSError:
            return False
        return False


def prepare(size: int, key: bytes, epoch: int) -> FlightFile:
    """Choose the file for a world of this process, and make room for it.

    A process has one file: that of the epoch before says nothing that matters any more. A world of one rank, which
    waits for nobody, has none.

    Args:
        size: of the world.
        key: the secret of the job's ranks, which the name of the job does not reveal; its launcher knows it, too.
        epoch: of an elastic job: the number of the world.
    """
    run = hmac.new(key, b"flight recorder", "sha256").hexdigest()[:_RUN_DIGITS]
    folder = _folder()
    if folder is None:
        return FlightFile("", run, epoch)
    if size == 1:
        for found in _all_in(folder) if epoch > 0 else ():
            if found.run == run and found.epoch < epoch:
                _remove(found.path)
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
    """Remove the files of an epoch that all ranks have left in good order, and of earlier ones. Call it after leaving.

    Each rank has noted its own end before it looks, so at least the last one sees all. Other files stay for readers.
    """
    if not ours.path:
        return
    old = []
    for found in _all_in(Path(ours.path).parent):
        if found.run != ours.run:
            continue
        if found.epoch > ours.epoch:
            if found.is_of_dead():
                continue  # of a job that had the same key before
            return
        if found.epoch == ours.epoch and found.state != _LEFT:
            return
        old.append(found.path)
    for path in old:
        _remove(path)


def _folder() -> Path | None:
    given = environment.flight_recorder()
    if given == "0":
        return None
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    return Path(given or f"{where}/farandole-{os.getuid()}")


def _make(folder: Path) -> None:
    """Another user could have made the folder first, and would read what is written there."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, os.strerror(1))


def _sweep(folder: Path) -> None:
    """Remove the files of processes that died long ago, and of the others that are dead the oldest.

    So jobs that end badly one after the other do not fill the file system. A time in the future is of before the
    machine's last start.
    """
    now_ns = time.monotonic_ns()
    dead = [found for found in _all_in(folder) if found.is_of_dead()]
    ages = sorted((now_ns - found.late_ns if found.late_ns <= now_ns else 2**63, found.path) for found in dead)
    for number, (age_ns, path) in enumerate(ages):
        if number >= _KEPT_FILES or age_ns > _KEPT_NS:
            _remove(path)


def _all_in(folder: Path) -> Iterator[_Found]:
    for path in folder.glob("*.flight"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            header = os.pread(descriptor, _HEADER.size, 0)
        finally:
            os.close(descriptor)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            continue
        _, pid, state, epoch, late_ns, run = _HEADER.unpack(header)
        yield _Found(path, pid, state, epoch, late_ns, run.rstrip(b"\0").decode("ascii", "replace"))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
