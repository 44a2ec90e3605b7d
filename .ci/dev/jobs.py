"""Jobs that run side by side: which needs which, what is said meanwhile, and what is said at the end."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import wraps
from graphlib import TopologicalSorter
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

import nox

from dev import MADE, ROOT

P = ParamSpec("P")
T = TypeVar("T")
SHIPPED, MEASURED = ROOT / ".ci" / "usual.json", MADE / "usual.json"  # name of a job -> seconds: elsewhere, here
_BYTES_OF_A_JOB = 3 * 2**30  # four ranks with a framework each
_SHOWN_LINES = 400
_PASSED = re.compile(r"^(=+ short test summary info =+\n(?:.*\n)*|=+ .*\d+ passed.*|\d+% tests passed.*)", re.MULTILINE)
_steps: list[tuple[str, str, float]] = []  # (what, how it ended, seconds)
_here = threading.local()
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@dataclass(frozen=True)
class Job:
    """Something to do, once those of the run's jobs that are named in `needs` have succeeded."""

    action: Callable[[], object]
    needs: tuple[str, ...] = ()


def one_at_a_time(make: Callable[P, T]) -> Callable[P, T]:
    """Let whoever asks for a thing while another job makes it wait until it is there."""

    @wraps(make)
    def locked(*args: P.args, **kwargs: P.kwargs) -> T:
        what = [each for each in args if not isinstance(each, nox.Session)]
        with _locks[f"{make.__name__} {what}"]:
            return make(*args, **kwargs)

    return locked


def log() -> IO[str] | None:
    """Where the programs of this thread's job print; None: on the terminal."""
    return getattr(_here, "log", None)


@contextlib.contextmanager
def step(what: str, expect: str = "") -> Iterator[None]:
    """Say what starts and about how long or large it is; remember how long it took."""
    say(f"==> {what}" + (f" ({expect})" if expect else ""))
    begin, result = time.monotonic(), "FAILED"
    try:
        yield
        result = "ok"
    finally:
        _steps.append((what, result, time.monotonic() - begin))


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # at once, since others print, too


@atexit.register
def summary() -> None:
    for what, result, seconds in [("\n==> Summary", "", 0.0), *_steps] if _steps else []:
        print(f"{result:>8} {seconds:7.1f} s  {what}" if result else what, flush=True)


def run_jobs(session: nox.Session, jobs: dict[str, Job], most: int = 0) -> None:
    """Run jobs, at most so many at once, by default as many as fit; those first on which most time depends.

    When one fails, those that need it are left out and the others still run; then the session fails.
    """
    (available,) = re.findall(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    fit = min((os.cpu_count() or 1) * 3 // 2 + 2, int(available) * 1024 // _BYTES_OF_A_JOB)  # most wait, mostly
    run = Run(jobs, most or max(1, fit))
    run.work()
    if run.failed:
        session.error(f"failed: {', '.join(sorted(run.failed))}")


class Run:
    """Some jobs, as far as they have come."""

    def __init__(self, jobs: dict[str, Job], most: int) -> None:
        self.jobs, self.most = jobs, most
        self.needs = {name: [each for each in job.needs if each in jobs] for name, job in jobs.items()}
        self.running: dict[Future[None], tuple[str, float]] = {}
        self.failed: set[str] = set()
        self.usual: dict[str, float] = json.loads(SHIPPED.read_text())
        self.usual |= json.loads(MEASURED.read_text()) if MEASURED.is_file() else {}
        self.ahead = dict.fromkeys(jobs, 0.0)  # seconds until it is done, and the longest chain of jobs that need it
        for name in reversed([*TopologicalSorter(self.needs).static_order()]):
            self.ahead[name] += self.usual.get(name, 10.0)
            for each in self.needs[name]:
                self.ahead[each] = max(self.ahead[each], self.ahead[name])

    def work(self) -> None:
        order = TopologicalSorter(self.needs)
        order.prepare()
        ready: list[str] = []
        with ThreadPoolExecutor(self.most) as pool:
            while order.is_active() and not (self.failed and "STOP_AT_FAILURE" in os.environ):
                ready = sorted([*ready, *order.get_ready()], key=self.ahead.__getitem__)
                while ready and len(self.running) < self.most:
                    name = ready.pop()
                    self.running[pool.submit(self.perform, name)] = name, time.monotonic()
                for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                    order.done(self.end(future))

    def perform(self, name: str) -> None:
        """In a thread of the pool."""
        with log_of(name).open("w") as file:
            _here.log = file if self.most > 1 else None
            if missing := self.failed.intersection(self.needs[name]):
                raise RuntimeError(f"not run: needs {', '.join(missing)}")
            if name in self.usual:
                say(f"==> {name} (usually {self.usual[name]:.0f} s)")
            self.jobs[name].action()

    def end(self, future: Future[None]) -> str:
        """Say how a job ended, what its test runner says at its end, and what still runs. Returns its name."""
        name, begin = self.running.pop(future)
        seconds, error = time.monotonic() - begin, future.exception()
        if error is None:
            self.usual[name] = round(seconds, 1)
            MEASURED.write_text(json.dumps(self.usual, indent=1, sort_keys=True))
        else:
            self.failed.add(name)
        _steps.append((name, "FAILED" if error else "ok", seconds))
        text = log_of(name).read_text(errors="replace")
        if error:  # all that it printed, but for C++ tests that passed
            told = [line for line in text.splitlines() if not re.search(r"^ +Start +\d+:| Passed +[\d.]+ sec", line)]
            told = [*told[-_SHOWN_LINES:], f"==> all of it: {log_of(name)}"] if text else []
            say("\n".join([f"==> {name} FAILED: {error}", *told]))
        elif passed := _PASSED.search(text):
            say(passed[0].rstrip())
        others = "; ".join(f"{each}, {time.monotonic() - since:.0f} s so far" for each, since in self.running.values())
        left = len(self.jobs) - sum(what in self.jobs for what, _, _ in _steps)
        say(f"{_steps[-1][1]:>8} {seconds:7.1f} s  {name} [{left} to go; {others}]")
        return name


def log_of(name: str) -> Path:
    (MADE / "logs").mkdir(parents=True, exist_ok=True)
    return MADE / "logs" / f"{re.sub('[^A-Za-z0-9.]+', '-', name)[:200]}.txt"
