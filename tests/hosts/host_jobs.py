"""Jobs of `farandole run` on the hosts of a lab, and what they have left there."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from lab import Host

LIMIT_S = 60.0

# Each rank says its place, after a sum of all.
PLACES = """
import os, socket, numpy as np, farandole.numpy as hvd
hvd.init()
total = hvd.allreduce(np.arange(100_000.0) * (hvd.rank() + 1), op=hvd.Sum)
assert np.array_equal(total, np.arange(100_000.0) * hvd.size() * (hvd.size() + 1) / 2)
print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank(), socket.gethostname(), os.environ["MASTER_ADDR"])
"""


class Job:
    """A running `farandole run` on the first host."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.began = time.monotonic()

    def await_lines(self, count: int, word: str) -> None:
        """Reads stdout until `count` lines have had `word`."""
        while count:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            count -= word in line

    def await_error(self, word: str) -> str:
        """Reads stderr until `word` is there; returns what was read."""
        text = ""
        while word not in text:
            data = os.read(self.process.stderr.fileno(), 1 << 16)
            assert data, text
            text += data.decode()
        return text

    def kill(self) -> tuple[str, str]:
        """Ends it at once, and returns what it has printed since."""
        self.process.kill()
        return self.process.communicate()

    def finish(self, timeout: float = LIMIT_S) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


def processes(host: Host, *words: str) -> list[str]:
    """The command lines of a host's processes that have these words, each with its number before it."""
    script = "for p in /proc/[0-9]*; do echo ${p#/proc/} $(tr '\\0' ' ' < $p/cmdline); done 2>/dev/null"
    lines = host.run(["sh", "-c", script]).stdout.splitlines()
    return [line for line in lines if all(word in line for word in words) and "for p in " not in line]


def await_nothing(hosts: Sequence[Host], limit_s: float = 10.0) -> None:
    """Waits until no host has an agent or a rank any more."""
    until = time.monotonic() + limit_s
    while left := [line for host in hosts for line in processes(host, "python") if "pytest" not in line]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
