"""Processes that begin with a framework imported: forks of one that has done it, since an import takes seconds.

    pytest                            template                         a rank
      | start(command, env) ---------> fork ------------------------->  becomes what `command` would run
      | <----------------- pid         |                                |  and ends as an interpreter ends
      | <--------------------------- its exit status <----------------- +

A template has imported modules and done nothing else, so it has no threads but those of OpenBLAS, which a fork renews.
It also imports what nearly every rank of a test needs beside the framework: farandole, which reads no variable before
it is used, cloudpickle, which brings a function to a rank, and pytest, which the function's module imports.
There is one for each set of the variables that libraries read while they are imported.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_READ_AT_IMPORT = ("OMP_", "MKL_", "OPENBLAS_", "TF_", "KERAS_", "MXNET_", "TORCH_", "LD_", "PYTHONW")
_MOST_TEMPLATES = 4
_OF_RANKS = ("farandole", "cloudpickle", "pytest")
_STATUS = struct.Struct("!i")

_modules: list[str] = []
_templates: dict[tuple[tuple[str, str], ...], _Template] = {}


def preload(*modules: str) -> None:
    """Let rank processes that start from now on begin with these modules imported.

    A framework may import more at a first use: PyTorch `torch._dynamo` at an optimizer's step, TensorFlow `keras`.
    """
    _modules[:] = [*dict.fromkeys([*_modules, *modules])]
    end_templates()


@atexit.register
def end_templates() -> None:
    """End the processes that others are forked from."""
    while _templates:
        _templates.popitem()[1].close()


def start(
    command: Sequence[str], env: Mapping[str, str], output: IO[bytes], pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes] | Forked:
    """Start a command in a session of its own, what it prints going to `output`; forked, if it is Python's."""
    if not _modules or command[0] != sys.executable:
        return subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    key = tuple(sorted((name, value) for name, value in env.items() if name.startswith(_READ_AT_IMPORT)))
    if key not in _templates:
        while len(_templates) >= _MOST_TEMPLATES:
            _templates.pop(next(iter(_templates))).close()
        ours = {name: value for name, value in env.items() if not name.startswith("FARANDOLE_")}
        here = [name for name in _OF_RANKS if importlib.util.find_spec(name)]
        _templates[key] = _Template([*_modules, *here], ours)
    try:
        return _templates[key].fork(list(command[1:]), dict(env), output.fileno(), list(pass_fds))
    except RuntimeError:
        _templates.pop(key).close()
        raise


class Forked:
    """A process that a template has forked: the part of `subprocess.Popen` that a test needs."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self.returncode = pid, None
        self._status = status  # a pipe, in which its exit status comes

    returncode: int | None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, within so many seconds, else subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            data = os.read(self._status, _STATUS.size)
            os.close(self._status)
            # Without a status the template is gone, and what it had forked with it.
            self.returncode = _STATUS.unpack(data)[0] if data else -signal.SIGKILL
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class _Template:
    """A process that has imported the modules, seen from the test."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            command = [sys.executable, str(Path(__file__).with_name("_template.py")), str(theirs.fileno()), *modules]
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )

    def fork(self, command: list[str], env: dict[str, str], output: int, pass_fds: list[int]) -> Forked:
        """Raises RuntimeError where the modules could not be imported."""
        reading, writing = os.pipe()
        request = pickle.dumps((command, env, os.getcwd(), pass_fds))
        answer = b""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._socket, [struct.pack("!Q", len(request))], [writing, output, *pass_fds])
            self._socket.sendall(request)
            answer = self._socket.recv(_STATUS.size)
        os.close(writing)
        if not answer:
            os.close(reading)
            raise RuntimeError(f"the process that imports {', '.join(_modules)} has ended, see what it printed above")
        return Forked(_STATUS.unpack(answer)[0], reading)

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()
