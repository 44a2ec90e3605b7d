"""The child of an agent that examines this host for `farandole doctor -H`, read without blocking the agent's loop."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from farandole.launch import guard
from farandole.launch.remote.ssh import last_line

_MODULE = "farandole.observe.doctor.examine"
_CHUNK = 1 << 16
_MOST_BYTES = 1 << 22


class Examiner:
    """Runs the child once. The agent reaps it, and kills it where it ends first."""

    def __init__(self, selector: selectors.BaseSelector, on_end: Callable[[dict[str, Any]], None]) -> None:
        self._selector, self._on_end = selector, on_end
        self._received: dict[int, bytearray] = {}
        self._out = -1

    def start(self, environment: Mapping[str, str], limit_s: float) -> None:
        """`on_end` gets findings and versions, or the only key "error". REQUIRES one thread."""
        try:
            process = _start(environment, limit_s)
        except OSError as error:
            self._on_end({"error": f"a process cannot be started: {error.strerror}"})
            return
        assert process.stdout and process.stderr
        self._process, self._out = process, process.stdout.fileno()
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            self._received[pipe.fileno()] = bytearray()
            self._selector.register(pipe, selectors.EVENT_READ, lambda pipe=pipe: self._read(pipe.fileno()))

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        received = self._received[descriptor]
        received += data
        del received[:-_MOST_BYTES]  # the answer is the last line
        if not data:
            self._selector.unregister(descriptor)
            if descriptor == self._out:
                self._end()

    def _end(self) -> None:
        for other in self._received:
            if other in self._selector.get_map():
                self._read(other)  # the error was written before
        self._on_end(self._answer())

    def _answer(self) -> dict[str, Any]:
        out, err = (bytes(each).decode(errors="replace") for each in self._received.values())
        try:
            answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return {"error": f"it could not be examined{last_line(err)}"}
        return answer


def _start(environment: Mapping[str, str], limit_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, str(limit_s)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(guard.become_child, os.getpid()),  # noqa: PLW1509  (the agent has one thread)
    )
