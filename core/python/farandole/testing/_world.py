"""A world of living rank processes to which functions are sent: a framework's import costs seconds, a call nothing."""

from __future__ import annotations

import atexit
import contextlib
import pickle
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from farandole._runtime.call_sites import is_ours
from farandole._start import environment
from farandole.testing._ranks import (
    Process,
    RanksFailed,
    launcher_environment,
    rank_environments,
    show_stacks,
    stop,
)

_GRACE_S = 5.0  # for the others, when one rank has failed
_START_S = 60.0  # for another launcher, until its ranks have reached us


class World:
    """`ranks` processes that wait for functions to run. Started at the first `run`, again after a failure."""

    def __init__(
        self,
        ranks: int,
        *,
        env: Mapping[str, str] | None = None,
        init: bool = True,
        launcher: Sequence[str] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            ranks: size of the world.
            env: more environment variables.
            init: whether the ranks call `farandole.init()` before the first function.
            launcher: the command of who starts the ranks, such as mpirun, before that of a rank; it tells them their
                places. None: that of FARANDOLE_TEST_LAUNCHER, else they are started here.
        """
        self.ranks = ranks
        self._env, self._init = dict(env or {}), init
        self._launcher = environment.test_launcher(ranks) if launcher is None else list(launcher)
        self._resources = contextlib.ExitStack()
        self._processes: list[Process] = []
        self._connections: list[Connection] = []

    def run(self, function: Callable[..., Any], *args: Any, timeout: float = 60.0) -> list[Any]:
        """Call `function(*args)` on every rank at once, and return the results by rank.

        The function travels by value, so it may be local, or live in a module that the ranks cannot import.

        Raises:
            RanksFailed: a rank raised or died (then the others have a few seconds to end), or the time is over. The
                processes are ended then.
        """
        __tracebackhide__ = True
        from farandole._runtime import pickling

        if not self._processes:
            self._start()
        with by_value(function):
            request = bytes(pickling.dumps((function, args)))
        try:
            for each in self._connections:
                each.send_bytes(request)
        except OSError as error:
            raise self._failure({}, list(range(self.ranks)), f"cannot be reached ({error})") from error
        return self._collect(timeout)

    def close(self) -> None:
        """End the processes."""
        for each in self._connections:
            each.close()
        stop(self._processes)
        self._connections, self._processes = [], []
        self._resources.close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        if self._launcher and self.ranks > 1:
            self._start_by(self._launcher)
        else:
            self._start_ourselves()

    def _start_by(self, launcher: Sequence[str]) -> None:
        """Listens where the ranks find the socket by its path, since launchers do not pass sockets on."""
        folder = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="farandole-test-"))
        variables = launcher_environment(self.ranks, self._env)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/socket")
            listener.listen(self.ranks)
            listener.settimeout(0.5)
            deadline = time.monotonic() + _START_S
            command = [*launcher, sys.executable, "-m", "farandole.testing._child", f"{folder}/socket"]
            process = Process(0, [*command, str(int(self._init))], variables)
            self._processes = [process] * self.ranks
            connections: dict[int, Connection] = {}
            while len(connections) < self.ranks:
                try:
                    accepted, _ = listener.accept()
                except TimeoutError:
                    if time.monotonic() < deadline and process.popen.poll() is None:
                        continue
                    text = process.describe(f"and others: of {self.ranks}, {len(connections)} have started")
                    self.close()
                    raise RanksFailed(text) from None
                connection = Connection(accepted.detach())
                connections[int(connection.recv_bytes())] = connection
        self._connections = [connections[rank] for rank in range(self.ranks)]

    def _start_ourselves(self) -> None:
        environments = self._resources.enter_context(rank_environments(self.ranks, self._env))
        for rank, variables in enumerate(environments):
            ours, theirs = Pipe()
            with theirs:
                command = [sys.executable, "-m", "farandole.testing._child", str(theirs.fileno()), str(int(self._init))]
                self._processes.append(Process(rank, command, variables, [theirs.fileno()]))
            self._connections.append(ours)

    def _collect(self, timeout: float) -> list[Any]:
        """Wait for every rank's answer; the first failure shortens the time that the others have."""
        __tracebackhide__ = True
        answers: dict[int, Any] = {}
        failures: dict[int, str] = {}
        deadline = time.monotonic() + timeout
        waiting = {each: rank for rank, each in enumerate(self._connections)}
        while waiting and time.monotonic() < deadline:
            for each in wait([*waiting], max(0.0, deadline - time.monotonic())):
                rank = waiting.pop(each)  # type: ignore[call-overload]
                ok, answer = self._receive(rank)
                if ok:
                    answers[rank] = answer
                else:
                    failures[rank] = answer
                    deadline = min(deadline, time.monotonic() + _GRACE_S)
        if failures or waiting:
            raise self._failure(failures, [*waiting.values()], f"did not answer within {timeout:g} s")
        return [answers[rank] for rank in range(self.ranks)]

    def _receive(self, rank: int) -> tuple[bool, Any]:
        try:
            ok, answer = pickle.loads(self._connections[rank].recv_bytes())
        except (EOFError, ConnectionError):
            code = self._processes[rank].popen.wait()
            return False, self._processes[rank].describe(f"exited with {code}")
        return ok, answer if ok else f"rank {rank} raised:\n{answer}"

    def _failure(self, failures: Mapping[int, str], missing: list[int], what: str) -> RanksFailed:
        show_stacks(list(dict.fromkeys(self._processes[rank] for rank in missing)))
        texts = [*failures.values(), *dict.fromkeys(self._processes[rank].describe(what) for rank in missing)]
        self.close()
        return RanksFailed("\n".join(texts))


_living: dict[int, World] = {}


def world(ranks: int) -> World:
    """The shared world of this size: one for all tests of a run, ended at exit."""
    return _living.setdefault(ranks, World(ranks))


@atexit.register
def end_worlds() -> None:
    """End the shared worlds."""
    while _living:
        _living.popitem()[1].close()


@contextlib.contextmanager
def by_value(*functions: Callable[..., Any] | None) -> Iterator[None]:
    """Within the block, cloudpickle sends the functions' modules by value, unless they are ours."""
    from farandole._runtime import pickling

    names = {getattr(function, "__module__", None) or "" for function in functions if function is not None}
    names = {name for name in names if name in sys.modules and name != "__main__" and not is_ours(name)}
    with pickling.by_value([sys.modules[name] for name in names]):
        yield


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
