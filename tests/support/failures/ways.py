"""Starts the job of a case as a user does, does what the user does, and awaits the end."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from lab import Host, Lab

from failures.case import Case
from failures.judge import MARK, Told, left_behind, processes_of, shared_memory

LIMIT_S = 150.0  # for a job that takes 1 to 3 s where the machine is not busy
PAUSE_S = 0.4
PLACES = "h0:1,h1:2"
# As from a terminal, even if the tests run under nohup or in the background.
AS_IN_A_TERMINAL = ["env", "--default-signal=HUP,INT,QUIT"]

# After the program of a case: calls it by `farandole.run`, and leaves word of what came of it and of the caller itself.
CALL = """
if __name__ == "__main__":
    import asyncio, concurrent.futures, json, farandole

    def job():
        return farandole.run(train, np=RANKS, **OPTIONS)

    def beside_another():
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            other, this = pool.submit(farandole.run, sum, ([4, 5],), np=2), pool.submit(job)
        assert other.result() == [9, 9]
        return this.result()

    async def beside_others():
        task = asyncio.create_task(asyncio.to_thread(job))
        while not task.done():
            await asyncio.sleep(0.01)
        return await task

    def look():
        mine = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)]
        return mine, len(os.listdir("/proc/self/fd"))

    child = subprocess.Popen(["sh", "-c", "exit 9"])
    word, before = {"raised": "", "message": "", "blamed": None, "code": 0}, look()
    try:
        CALLING
    except BaseException as error:
        word["raised"] = " ".join(each.__name__ for each in type(error).__mro__)
        word["message"] = f"{error}\\n{error.__cause__ or str()}"
        word["blamed"], word["code"] = getattr(error, "failed_rank", None), getattr(error, "exit_code", None)
    code, kept = child.wait(), 0 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 9
    word["caller"] = "unchanged" if look() == before and code == kept else f"{before} became {look()}, {code}"
    json.dump(word, open("word.json", "w"))
"""
# Beside the program of a case: runs it by `farandole.launch.run`, and shows the end as the command does.
LIBRARY = """
import json, os, signal, subprocess, sys
from farandole import launch

def look():
    mine = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)]
    return mine, len(os.listdir("/proc/self/fd"))

child, before = subprocess.Popen(["sh", "-c", "exit 9"]), look()
try:
    result = launch.run(launch.JobSpec.of([sys.executable, "train.py"], num_proc=RANKS))
except launch.SpecError as error:
    sys.exit(print(f"farandole: {error}", file=sys.stderr) or 2)
code = child.wait()
caller = "unchanged" if look() == before and code == 9 else f"{before} became {look()}, {code}"
json.dump({"caller": caller}, open("word.json", "w"))
print(result.ended.on_screen(f"[{result.ended.culprit}]"), file=sys.stderr)
sys.exit(result.exit_code)
"""
CALLS = {
    "script": "job()",
    "script-hosts": "job()",
    "thread": "beside_another()",
    "asyncio": "asyncio.run(beside_others())",
}


def run(case: Case, way: str, folder: Path) -> Told:
    """The case to its end, in a new folder. Raises lab_namespaces.CannotMake where this machine can have no hosts."""
    if "hosts" not in way:
        return Job(case, way, folder, []).told()
    lab = Lab(_made(folder / "lab"))
    try:
        return Job(case, way, folder, lab.hosts(2), " ".join(lab.ssh_command)).told()
    finally:
        lab.close()


def _made(folder: Path) -> Path:
    folder.mkdir(0o700, parents=True)
    return folder


class Job:
    """A running job, from its start on."""

    def __init__(self, case: Case, way: str, folder: Path, hosts: Sequence[Host], ssh: str = "") -> None:
        self.case, self.way, self.hosts, self.mark = case, way, hosts, uuid.uuid4().hex
        self.cwd = _made(folder / "job")
        self.private = [_made(folder / name) for name in ("tmp", "run", "flight")]
        self.memory = shared_memory()
        (self.cwd / "train.py").write_text(self._program())
        (self.cwd / "library.py").write_text(LIBRARY.replace("RANKS", str(case.ranks)))
        command = [*AS_IN_A_TERMINAL, *self._command()]
        if case.before or case.redirect:
            command = ["bash", "-c", f'{case.before} exec "$@" {case.redirect}', "bash", *command]
        out, err = ((self.cwd / name).open("wb") for name in ("out", "err"))
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "cwd": self.cwd}
        with out, err:
            start = hosts[0].start if hosts else subprocess.Popen
            environment = self._environment(ssh)
            self.process: subprocess.Popen[Any] = start(command, env=environment, start_new_session=True, **options)

    def _program(self) -> str:
        if self.way not in CALLS:
            return f"{self.case.text}\ntrain()\n"
        places = {"hosts": PLACES} if self.hosts else {}
        call = CALL.replace("RANKS", str(self.case.ranks)).replace("OPTIONS", repr(places))
        return self.case.text + call.replace("CALLING", CALLS[self.way])

    def _command(self) -> list[str]:
        if self.way in CALLS:
            return [sys.executable, "train.py"]
        if self.way == "library":
            return [sys.executable, "library.py"]
        places = f"-H {PLACES}" if self.hosts else f"-np {self.case.ranks}" if self.case.ranks else ""
        words = shlex.split(f"{places} {self.case.options} {self.case.command}")
        return [sys.executable, "-m", "farandole.launch", "run", *words]

    def _environment(self, ssh: str) -> dict[str, str]:
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), MARK: self.mark, "FARANDOLE_SSH": ssh}
        names = ("TMPDIR", "XDG_RUNTIME_DIR", "FARANDOLE_FLIGHT_RECORDER")
        variables |= {name: str(path) for name, path in zip(names, self.private, strict=True)}
        return {**os.environ, **variables, **self.case.env}

    def told(self) -> Told:
        """Does what the user does, awaits the end, and looks what is left."""
        try:
            for word in self.case.do.split():
                self._do(word)
            code: int | None = self.process.wait(LIMIT_S)
        except BaseException:
            self.process.kill()
            left_behind(self.mark, [], list, self.memory)
            raise
        hosts = [psutil.Process(host.pid) for host in self.hosts if psutil.pid_exists(host.pid)]
        left = left_behind(self.mark, self.private, partial(processes_of, hosts), self.memory)
        out, err = ((self.cwd / name).read_text(errors="replace") for name in ("out", "err"))
        word = self.cwd / "word.json"
        places = {0: "h0", 1: "h1", 2: "h1"} if self.hosts else {}
        found = {"code": code, "out": out, "err": err, "left": left, "is_call": self.way in CALLS, "hosts": places}
        return Told(**{**found, **(json.loads(word.read_text()) if word.exists() else {})})

    def _do(self, word: str) -> None:
        name, _, rank = word.partition(":")
        if word == "ready":
            self._await(lambda: all(map(self._pid, range(self.case.ranks))))
        elif word == "pause":
            time.sleep(PAUSE_S)
        elif word == "crash":
            self.hosts[1].crash()
        elif name == "gone":
            self._await(lambda: not psutil.pid_exists(self._pid(rank)))
        elif rank:
            os.kill(self._pid(rank), _signal(name))
        elif name.startswith("all-"):
            os.killpg(self.process.pid, _signal(name.removeprefix("all-")))
        else:
            self.process.send_signal(_signal(name))

    def _pid(self, rank: object) -> int:
        """0 before it has begun."""
        path = self.cwd / f"ready.{rank}"
        return int(path.read_text() or 0) if path.exists() else 0

    def _await(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < until and self.process.poll() is None, (self.cwd / "err").read_text()
            time.sleep(0.02)


def _signal(name: str) -> int:
    return int(signal.Signals[f"SIG{name}"])
