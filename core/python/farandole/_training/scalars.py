"""Scalars for TensorBoard: times of steps, waits, and who is waited for."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import weakref
from typing import TYPE_CHECKING, Protocol

from farandole._api.errors import ArgumentError
from farandole._start.world import rank, size

if TYPE_CHECKING:
    import subprocess

_PREFIX = "farandole/"
_MOST_BYTES = 1 << 16  # of lines that wait


class ScalarWriter(Protocol):
    """The method that `torch.utils.tensorboard.SummaryWriter` and `tensorboardX.SummaryWriter` have."""

    def add_scalar(self, tag: str, value: float, step: int, /) -> object:
        """Note a value at a step."""


class StepScalars:
    """Writes what steps cost to a writer of TensorBoard, on the ranks that have made one.

    | scalar | meaning |
    |---|---|
    | `farandole/step_seconds` | the mean time of a step since the scalars before |
    | `farandole/waiting_ratio` | the share of the time in which this rank waits for calls of other ranks |
    | `farandole/in_operations_ratio` | the share of the time with an operation of this rank in flight |
    | `farandole/bytes_per_second` | bytes given to this rank's operations |
    | `farandole/last_rank` | the rank that all others wait for longest, where all ranks are on one host |
    | `farandole/last_rank_ratio` | the share of the time in which they do |

    All but the first are of the last 5 seconds and that old at most. A process beside the rank reads them from the
    flight recorder, so a step pays for counting alone. In a world of one there is only the first.

    Example:
        >>> class Writer:  # torch.utils.tensorboard.SummaryWriter has this method
        ...     def add_scalar(self, tag, value, step):
        ...         print(tag, value > 0, step)
        >>> scalars = hvd.StepScalars(Writer(), every=10)
        >>> for _ in range(10):
        ...     scalars.step()
        farandole/step_seconds True 10
        >>> scalars.close()
    """

    def __init__(self, writer: ScalarWriter | None = None, *, every: int = 50) -> None:
        """Begin to count; after each `every` steps there are scalars.

        Args:
            writer: has `add_scalar(tag, value, step)`; None: the scalars are only in `latest`.
            every: number of steps, at least 1.

        Raises:
            ArgumentError: for fewer steps than one.
            NotInitializedError: before `init`.
        """
        rank()
        if every < 1:
            raise ArgumentError(f"every={every} must be at least 1")
        self.latest: dict[str, float] = {}
        self._writer, self._every, self._steps = writer, every, 0
        self._begin_s = time.perf_counter()
        self._unread = b""
        self._known: dict[str, float] = {}
        self._reader: subprocess.Popen[bytes] | None = None
        if size() > 1:
            import subprocess  # which `import farandole` does without

            command = [sys.executable, "-m", "farandole.observe.live.figures", str(os.getpid())]
            pipe, null = subprocess.PIPE, subprocess.DEVNULL
            self._reader = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True)
            os.set_blocking(_output(self._reader), False)
            weakref.finalize(self, _end, self._reader)

    def step(self) -> None:
        """Count a step; call it at the end of each step."""
        self._steps += 1
        if self._steps % self._every:
            return
        now_s = time.perf_counter()
        found = {"step_seconds": (now_s - self._begin_s) / self._every, **self._figures()}
        self.latest = {f"{_PREFIX}{name}": value for name, value in found.items()}
        self._begin_s = now_s
        if self._writer is not None:
            for tag, value in self.latest.items():
                self._writer.add_scalar(tag, value, self._steps)

    def close(self) -> None:
        """End the process beside the rank. The writer stays open."""
        if self._reader is not None:
            _end(self._reader)
            self._reader = None

    def _figures(self) -> dict[str, float]:
        """The last that the process beside the rank has said; it is not waited for."""
        if self._reader is not None:
            with contextlib.suppress(BlockingIOError):
                self._unread += os.read(_output(self._reader), _MOST_BYTES)
            *lines, self._unread = self._unread.split(b"\n")
            if lines:
                self._known = json.loads(lines[-1])
        return self._known


def _output(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return process.stdout.fileno()


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
