"""Runs the launcher as its users do, as a process, and finds whatever it left behind."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

_SOURCES = Path(__file__).parents[2] / "core" / "python"
if importlib.util.find_spec("farandole") is None:
    sys.path.insert(0, str(_SOURCES))

T = TypeVar("T")
LIMIT_S = 60.0
_MARK = "TEST_LAUNCH_MARK"


@dataclass
class Result:
    """The output and the exit code that a finished job left for its user."""

    code: int
    stdout: bytes
    stderr: bytes
    took_s: float

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()


@dataclass
class Launched:
    """A running launcher, and every process that carries its mark."""

    process: subprocess.Popen[bytes]
    mark: str
    started: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def inner(self) -> psutil.Process:
        """The process that supervises the ranks."""
        (child,) = psutil.Process(self.pid).children()
        return child

    def finish(self, stdin: bytes | None = None) -> Result:
        """Wait for the end."""
        out, err = self.process.communicate(stdin, timeout=LIMIT_S)
        return Result(self.process.returncode, out or b"", err or b"", time.monotonic() - self.started)

    def read_line(self) -> bytes:
        """The next line of stdout."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def left(self) -> list[psutil.Process]:
        """Processes of this job that live, the launcher included."""
        return [process for process in psutil.process_iter() if _carries(process, self.mark)]

    def of_each(self, look: Callable[[psutil.Process], T]) -> list[T]:
        """What is seen at the processes of this job, without those that end meanwhile."""
        found = []
        for process in self.left():
            with contextlib.suppress(psutil.Error):
                found.append(look(process))
        return found

    def wait_until_nothing_is_left(self, limit_s: float = 10.0) -> float:
        """Returns how long it took. What a test starts lives longer than this limit unless somebody ends it."""
        began = time.monotonic()
        while left := self.left():
            assert time.monotonic() - began < limit_s, f"still there: {left}, {self.of_each(psutil.Process.cmdline)}"
            time.sleep(0.02)
        return time.monotonic() - began


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _heed_signals() -> None:
    """As started from a terminal, even if the tests run under nohup or in the background."""
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_DFL)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """launch("-np", 2, "sh", "-c", ...) starts `farandole run ...` in an empty folder."""
    started: list[Launched] = []

    def start(*arguments: object, env: dict[str, str] | None = None, verb: str = "run", **options: Any) -> Launched:
        mark = uuid.uuid4().hex
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(env or {}), _MARK: mark}
        command = [sys.executable, "-m", "farandole.launch", verb, *map(str, arguments)]
        usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        usual |= {"cwd": tmp_path, "preexec_fn": _heed_signals}
        process = subprocess.Popen(list(filter(None, command)), env=environment, **{**usual, **options})
        started.append(Launched(process, mark))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()
        one.process.wait()
        for process in one.left():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def run(launch: Callable[..., Launched]) -> Callable[..., Result]:
    """run("-np", 2, "sh", "-c", ...) is the result of `farandole run ...`."""

    def start_and_finish(*arguments: object, **options: Any) -> Result:
        return launch(*arguments, **options).finish()

    return start_and_finish


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """script("print(1)") is the path of a Python file with that content."""

    def write(text: str) -> Path:
        path = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        return path

    return write
