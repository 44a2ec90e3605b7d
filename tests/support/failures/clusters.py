"""The cases as calls of functions on a cluster that runs already: Ray or Spark.

The caller is the test's own process, so what a case does to it must leave it alive.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from failures import ranks, users
from failures.case import Case
from failures.judge import MARK, Told, left_behind, shared_memory

LIMIT_S = 300
_PAUSE_S = 0.4
_FOR_CALLS = {"script", "thread", "asyncio", "script-hosts"}
_DONE = {"ready", "pause", "INT", "KILL:1"}
_WORK = """
def work():
    os.chdir(FOLDER)
    pathlib.Path("node." + os.environ["FARANDOLE_RANK"]).write_text(os.environ.get("FARANDOLE_NODE", ""))
    return train()
"""


@dataclass
class Cluster:
    """A cluster with room for so many ranks."""

    ranks: int
    call: Callable[[Callable[[], object], int, Mapping[str, str]], object]  # the function, ranks, their variables
    name_of_host: Callable[[str], str]  # by the id of a rank's node
    processes: Callable[[], Iterable[psutil.Process]] = list  # of jobs: agents, launchers, ranks

    def cases(self) -> list[Case]:
        """Those of a function that fails by itself, or whose caller is interrupted."""
        found = []
        for case in (*ranks.CASES, *users.CASES):
            is_shell = case.options or case.before or case.redirect or case.command != "train.py"
            if _FOR_CALLS & set(case.ways.split()) and not is_shell and set(case.do.split()) <= _DONE:
                found.append(replace(case, ranks=min(case.ranks, self.ranks)))
        return [case for case in found if case.ranks <= self.ranks]

    def run(self, case: Case, folder: Path) -> Told:
        """The case to its end, in a new folder."""
        private = [folder / name for name in ("tmp", "run", "flight")]
        for each in (folder, *private):
            each.mkdir(0o700)
        mark, memory = uuid.uuid4().hex, shared_memory()
        names = ("TMPDIR", "XDG_RUNTIME_DIR", "FARANDOLE_FLIGHT_RECORDER")
        variables = {**dict(zip(names, map(str, private), strict=True)), MARK: mark, **case.env}
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, variables), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            word = self._called(case, folder, variables)
        left = left_behind(mark, private, self.processes, memory)
        hosts = {int(file.suffix[1:]): self.name_of_host(file.read_text()) for file in folder.glob("node.*")}
        return Told(**word, out=out.getvalue(), err=err.getvalue(), is_call=True, left=left, hosts=hosts)

    def _called(self, case: Case, folder: Path, variables: Mapping[str, str]) -> dict[str, Any]:
        text, file = case.text + _WORK.replace("FOLDER", repr(str(folder))), folder / "train.py"
        file.write_text(text)
        names: dict[str, Any] = {"__name__": "__main__"}  # so that its functions travel by value
        exec(compile(text, file, "exec"), names)
        user = threading.Thread(target=_act, args=(case, folder), daemon=True)
        child = subprocess.Popen(["sh", "-c", "exit 9"])
        word: dict[str, Any] = {"code": 0}
        with _limit():
            before = _handlers()
            user.start()
            try:
                try:
                    self.call(names["work"], case.ranks, variables)
                finally:
                    user.join(LIMIT_S)
            except BaseException as error:
                word["raised"] = " ".join(each.__name__ for each in type(error).__mro__)
                word["message"] = f"{error}\n{error.__cause__ or ''}"
                word["blamed"], word["code"] = getattr(error, "failed_rank", None), getattr(error, "exit_code", None)
            if _handlers() != before or child.wait() != 9:
                word["caller"] = f"{before} became {_handlers()}, {child.returncode}"
        return word


def _handlers() -> list[object]:
    return [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)]


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt here, also in a job of a shell's background; what takes too long is an error."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"it has not ended after {LIMIT_S} s")

    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    alarm = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGINT, interrupt)


def _act(case: Case, folder: Path) -> None:
    """What the user does."""
    ready = [folder / f"ready.{rank}" for rank in range(case.ranks)]
    until = time.monotonic() + LIMIT_S
    for word in case.do.split():
        while word == "ready" and not all(file.exists() and file.read_text() for file in ready):
            if time.monotonic() > until:
                return
            time.sleep(0.02)
        if word == "pause":
            time.sleep(_PAUSE_S)
        elif word == "INT":
            os.kill(os.getpid(), signal.SIGINT)
        elif word == "KILL:1":
            os.kill(int(ready[1].read_text()), signal.SIGKILL)
