"""A function or a script, run once in every rank of a new world."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from farandole.testing._ranks import Process, RanksFailed, rank_environments, stop
from farandole.testing._world import World


class Ended(NamedTuple):
    """How a script ended: its exit code, negative for a signal, and what it printed."""

    code: int
    output: str


def spawn(
    ranks: int,
    target: Callable[..., Any] | str | Path,
    *args: Any,
    timeout: float,
    env: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
    check: bool = True,
) -> list[Any]:
    """Run a function or a Python script once in each of `ranks` new processes of one world.

    Args:
        ranks: how many processes.
        target: a function, which calls `farandole.init()` itself, or the path of a script.
        args: positional arguments, or the script's command line.
        timeout: seconds after which all are killed.
        env: more environment variables; for a script perhaps a function that gives those of a rank.
        check: whether a script that exits with an error is a failure.

    Returns:
        By rank: what the function returned, or what the script printed (stdout and stderr); without `check` the
        script's `Ended`.

    Raises:
        RanksFailed: a rank failed; the others are killed then. Or the time is over; where each rank stood is shown.
    """
    if callable(target):
        if callable(env):
            raise TypeError("spawn: `env` can be a function of the rank for a script only; a function sets os.environ")
        with World(ranks, env=env, init=False) as world:
            return world.run(target, *args, timeout=timeout)
    with rank_environments(ranks, env) as environments:
        processes = [
            Process(rank, [sys.executable, "-X", "faulthandler", str(target), *map(str, args)], environment)
            for rank, environment in enumerate(environments)
        ]
        try:
            _await_exits(processes, timeout, check)
            if check:
                return [process.output() for process in processes]
            return [Ended(process.popen.wait(), process.output()) for process in processes]
        finally:
            stop(processes)


def _await_exits(processes: Sequence[Process], timeout: float, check: bool) -> None:
    deadline = time.monotonic() + timeout
    running = list(processes)
    while running:
        for process in list(running):
            code = process.popen.poll()
            if code is None:
                continue
            running.remove(process)
            if check and code != 0:
                raise RanksFailed(process.describe(f"exited with {code}"))
        if time.monotonic() > deadline:
            raise RanksFailed("\n".join(p.describe(f"did not end within {timeout:g} s") for p in running))
        time.sleep(0.01)
