"""Rank processes on this host, started with the environment that our launcher would give them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from farandole._start.environment import without_launchers
from farandole.testing._starting import start

_TAIL_BYTES = 8000


class RanksFailed(AssertionError):
    """A rank raised, exited with an error or did not finish in time; the message holds its output."""


@contextlib.contextmanager
def rank_environments(
    ranks: int, env: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None
) -> Iterator[list[dict[str, str]]]:
    """The environments of the `ranks` processes of one new world; valid within the `with` block.

    Args:
        ranks: size of the world, on this host.
        env: more variables, for every rank; or a function that gives those of a rank.
    """
    of_rank = env if callable(env) else lambda _: env or {}
    key = os.memfd_create("farandole-key", os.MFD_CLOEXEC)
    try:
        os.write(key, secrets.token_bytes(32))
        common = launcher_environment(ranks)
        common.update(
            FARANDOLE_SIZE=str(ranks),
            FARANDOLE_LOCAL_SIZE=str(ranks),
            FARANDOLE_CROSS_RANK="0",
            FARANDOLE_CROSS_SIZE="1",
            FARANDOLE_STORE=f"unix:farandole-test-{os.getpid()}-{secrets.token_hex(8)}",
            FARANDOLE_KEY_FILE=f"/proc/{os.getpid()}/fd/{key}",
        )
        places = [{"FARANDOLE_RANK": str(rank), "FARANDOLE_LOCAL_RANK": str(rank)} for rank in range(ranks)]
        yield [{**common, **of_rank(rank), **place} for rank, place in enumerate(places)]
    finally:
        os.close(key)


def launcher_environment(ranks: int, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which somebody else, who tells the processes their places, starts `ranks` of them."""
    common = without_launchers()
    common.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    return {**common, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **(env or {})}


class Process:
    """One rank: its own session, so that all it starts can be ended, and its output in a file without a name."""

    def __init__(self, rank: int, command: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int] = ()) -> None:
        self.rank = rank
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `stop`
        self.popen = start(command, env, self._output, pass_fds)

    def output(self, tail_bytes: int | None = None) -> str:
        """The output of the rank, or the end of it."""
        size = os.fstat(self._output.fileno()).st_size
        start = 0 if tail_bytes is None else max(0, size - tail_bytes)
        return os.pread(self._output.fileno(), size - start, start).decode(errors="replace")

    def describe(self, what: str) -> str:
        """For a failure's message: what happened, then the end of the output."""
        return f"rank {self.rank} {what}; its output ends with:\n{self.output(_TAIL_BYTES) or '(nothing)'}"

    def kill(self) -> None:
        """End it and everything in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()

    def close(self) -> None:
        self._output.close()


def show_stacks(processes: Sequence[Process]) -> None:
    """Have every living rank that registered for it print its Python stacks (see _child)."""
    for process in processes:
        if process.popen.poll() is None:
            process.popen.send_signal(signal.SIGUSR1)
    time.sleep(0.5)


def stop(processes: Sequence[Process]) -> None:
    """Kill all and forget their output."""
    for process in processes:
        process.kill()
    for process in processes:
        process.close()
