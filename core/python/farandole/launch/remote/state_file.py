"""The file of a job that outlives its launcher: how the next launcher reaches the agents. It holds a key: mode 0600.

The launcher that leads the job holds a lock on it, which the kernel releases when that process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from farandole.launch.job import Placement
from farandole.launch.options import Elastic
from farandole.launch.slots import Backoff
from farandole.launch.version import own_version

_MOST_BYTES = 1 << 24
WAIT_SECONDS = 2.0  # for the rest of a launcher of whose two processes one was killed
_TOUCH_SECONDS = 10.0
_STALE_SECONDS = 120.0  # after the agents' time
_FORM = 1


class StateError(Exception):
    """The file cannot be used; the message is one sentence for the user."""


@dataclass(frozen=True)
class HostRecord:
    """A host of the job."""

    name: str
    identity: str  # of the machine, since its start
    is_local: bool  # it is the launcher's own
    placements: Sequence[Placement]  # at the start

    @property
    def boot_id(self) -> str:
        """Of the machine, which gets another one when it is started again."""
        return self.identity.split()[1]


@dataclass(frozen=True)
class JobRecord:
    """The content of the file."""

    job: str  # names it
    key: str  # that a launcher proves to the agents; hexadecimal
    socket: str  # abstract name at which each agent listens
    seconds: float
    grace_s: float
    hosts: Sequence[HostRecord]
    elastic: Elastic
    ssh: Sequence[str]  # words before its options
    ssh_port: int | None
    ssh_identity: str
    python: str
    has_other_hosts: bool
    output: Mapping[str, Any] = field(default_factory=dict)  # prefix, timestamp, directory, verbose
    version: str = field(default_factory=own_version)


class StateFile:
    """The file, open and locked as long as this process lives."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor, self._touched_at = path, descriptor, 0.0

    @classmethod
    def create(cls, path: Path) -> StateFile:
        """A new, empty file. Raises StateError."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(f"--job-state: {path} cannot be made: {error.strerror}.") from error
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(path, descriptor)

    @classmethod
    def open(cls, path: Path, wait_s: float = WAIT_SECONDS) -> StateFile:
        """A file that a launcher has left. Raises StateError where another one has it, or it is no such file."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error.strerror}; see whether its job has ended.") from error
        found = os.fstat(descriptor)
        try:
            if not stat.S_ISREG(found.st_mode):
                raise StateError(f"{path} is no file of a job.")
            if found.st_uid != os.getuid():
                raise StateError(f"{path} belongs to another user, who alone can adopt the job.")
            if found.st_mode & 0o077:
                raise StateError(f"{path} can be used by other users, so its key is no secret; its mode must be 0600.")
            _lock(descriptor, path, wait_s)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def write(self, record: JobRecord) -> None:
        """Fill it. Raises OSError."""
        text = json.dumps({"farandole job": _FORM, **asdict(record)}).encode()
        os.pwrite(self._descriptor, text, 0)
        os.ftruncate(self._descriptor, len(text))
        os.fsync(self._descriptor)

    def read(self) -> JobRecord:
        """Raises StateError."""
        text = os.pread(self._descriptor, _MOST_BYTES, 0)
        if not text:
            raise StateError(f"{self.path} holds no job: its launcher died before all ranks were started.")
        try:
            found = json.loads(text)
            if found.pop("farandole job") != _FORM:
                raise ValueError
            record = _record(found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(f"{self.path} is no file of a job that this version of Farandole has started.") from error
        if record.version != own_version():
            told = f"{self.path} is of farandole {record.version}; adopt it with that version, not {own_version()}."
            raise StateError(told)
        return record

    def touch(self, now: float) -> None:
        """The launcher lives at this time. Now and then the file's own time says so, too."""
        if now - self._touched_at >= _TOUCH_SECONDS:
            self._touched_at = now
            with contextlib.suppress(OSError):
                os.utime(self._descriptor)

    def close(self) -> None:
        """Let another launcher lock it."""
        os.close(self._descriptor)

    def remove(self) -> None:
        """The job is over, or nothing is left of it."""
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == os.fstat(self._descriptor).st_ino:
                os.unlink(self.path)


def remove_of(path: str, job: str) -> None:
    """Remove the file if it is still that of this job: nobody has adopted it."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads(Path(path).read_bytes())["job"] == job:
            os.unlink(path)


def remove_stale(folder: Path) -> None:
    """Remove files of jobs of which nothing can be left: their launcher is dead, and so are the agents by now."""
    for path in folder.glob("job-*.json"):
        with contextlib.suppress(OSError, StateError):
            file = StateFile.open(path, wait_s=0.0)
            try:
                record, age_s = file.read(), time.time() - path.stat().st_mtime
                if age_s > record.seconds + record.grace_s + _STALE_SECONDS:
                    file.remove()
            finally:
                file.close()


def _lock(descriptor: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise StateError(f"the job of {path} has a launcher on this host; end that one first.") from error
        except OSError as error:
            raise StateError(f"{path} cannot be locked: {error.strerror}.") from error
        time.sleep(0.05)


def _record(found: dict[str, Any]) -> JobRecord:
    hosts = [
        HostRecord(**{**host, "placements": [Placement(**each) for each in host["placements"]]})
        for host in found["hosts"]
    ]
    elastic = Elastic(**{**found["elastic"], "backoff": Backoff(**found["elastic"]["backoff"])})
    return JobRecord(**{**found, "hosts": hosts, "elastic": elastic})
