"""One job with one fault: starts it, brings the fault about, and notes what its user is told."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import statements
from drawn import BY_NAME, Fault
from lab import Host, Lab

HERE = Path(__file__).parent
ASK_S = 0.25  # between two questions to inspect
START_S = 180.0  # several imports of TensorFlow at once
OTHER_S = 3.0  # after the first words for those of the other source
SOURCES = (statements.LAUNCHER, statements.INSPECT)
SLOW_RATE = "20mbit"
_LOOK_S, _END_S = 0.02, 30.0
_LINES = 40  # of stderr in a record


class NotStartedError(Exception):
    """The job never took the step in which its fault was to come."""


class Lines:
    """The lines of a stream, each with its time."""

    def __init__(self, stream: Any) -> None:
        self.found: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Any) -> None:
        with stream:
            for line in stream:
                self.found.append((time.monotonic(), line.rstrip("\n")))

    def await_end(self) -> None:
        self._thread.join(_END_S)


@dataclass(frozen=True)
class Told:
    """The words about a fault."""

    said: Sequence[statements.Said]
    lines: Sequence[tuple[float, str]]  # of stderr
    steps: int  # that the victim had made when a rank was accused for the first time; 0: none was

    def first(self, source: str) -> float | None:
        """When it first named a rank and a cause, after the moment."""
        certain = [each for each in self.said if each.accuses and each.cause != statements.UNCERTAIN]
        return min((each.at for each in certain if each.source == source and each.at >= 0), default=None)

    def as_json(self) -> dict[str, Any]:
        """For a record: who spoke when, and the last lines, so that a verdict can be understood later."""
        accusations = [each for each in self.said if each.accuses]
        return {
            "first": {source: self.first(source) for source in (statements.RANK, *SOURCES)},
            "said": [[round(each.at, 2), each.source, each.cause, each.culprits, each.text] for each in accusations],
            "lines": [[round(at, 2), line] for at, line in self.lines if at > -1][-_LINES:],
        }


class Job:
    """A job in a folder of its own; `hosts` are those of a lab, none for a job on this machine alone."""

    def __init__(self, fault: Fault, folder: Path, lab: Lab | None) -> None:
        self.fault, self.kind, self.folder = fault, BY_NAME[fault.kind], folder
        self._lab = lab
        self.hosts: Sequence[Host] = lab.hosts(fault.hosts) if lab else ()
        self._flights = Path(tempfile.mkdtemp(prefix="farandole-diagnosis-", dir=_memory()))
        (folder / "plan.json").write_text(json.dumps(fault.plan()))
        (folder / "steps").write_bytes(bytes(8 * fault.ranks))
        self._steps = 0
        self._started: list[subprocess.Popen[Any]] = []

    # ---- processes

    def start(self, home: Path, asker: Path) -> None:
        """The launcher, of the framework's environment, and who asks inspect on each host."""
        words = ["-np", str(self.fault.ranks)]
        if self.hosts:
            slots = zip(self.hosts, self.fault.per_host, strict=True)
            words += ["-H", ",".join(f"{host.name}:{ranks}" for host, ranks in slots)]
        python = str(home / "bin" / "python")
        command = [python, "-m", "farandole.launch", "run", *words, python, str(HERE / "trainee.py"), str(self.folder)]
        self.launcher = self._start(self.hosts[0] if self.hosts else None, command)
        self.stderr, self._stdout = Lines(self.launcher.stderr), Lines(self.launcher.stdout)
        ask = [str(asker / "bin" / "python"), str(HERE / "asker.py"), str(ASK_S)]
        self.answers = [Lines(self._start(host, ask).stdout) for host in self.hosts or [None]]

    def _start(self, host: Host | None, command: Sequence[str]) -> subprocess.Popen[Any]:
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        how |= {"text": True, "errors": "replace", "cwd": self.folder}
        process = (
            host.start(["env", *self._variables(), *command], **how)
            if host
            else subprocess.Popen(["env", *self._variables(), *command], **how)
        )
        self._started.append(process)
        return process

    def _variables(self) -> list[str]:
        if self._lab:
            return [f"FARANDOLE_SSH={' '.join(self._lab.ssh_command)}"]
        return [f"FARANDOLE_FLIGHT_RECORDER={self._flights}"]

    def close(self) -> None:
        """End the launcher as a user does who presses Ctrl-C twice, then by force; and then all else."""
        for _ in range(2):
            if self.launcher.poll() is None:
                self.launcher.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.launcher.wait(1)
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait(_END_S)
        shutil.rmtree(self._flights)

    # ---- the fault

    def moment(self) -> float | None:
        """When the fault could be seen for the first time; None before."""
        with contextlib.suppress(OSError, ValueError):
            return float((self.folder / "moment").read_text())
        return None

    def steps_of(self, rank: int) -> int:
        return int.from_bytes((self.folder / "steps").read_bytes()[8 * rank :][:8], "little")

    def await_moment(self) -> float:
        """Bring the fault about, where the ranks do not do so themselves."""
        until = time.monotonic() + START_S
        while (moment := self.moment()) is None:
            if time.monotonic() > until or self.launcher.poll() is not None:
                raise NotStartedError("\n".join(line for _, line in self.stderr.found))
            if self._acts_from_outside and min(map(self.steps_of, range(self.fault.ranks))) >= self.fault.step:
                self._act()
            time.sleep(_LOOK_S)
        return moment

    @property
    def _acts_from_outside(self) -> bool:
        return self.kind.is_flat or self.kind.needs_hosts

    def _act(self) -> None:
        if self.fault.kind == "slow link":
            self.hosts[self.fault.victim_host].shape(SLOW_RATE)
        elif self.fault.kind == "partition":
            self.hosts[self.fault.victim_host].blackhole()
        (self.folder / "moment").write_text(str(time.monotonic()))

    # ---- the words

    def told(self, since: float, until: float) -> Told:
        """The words until a time; times count from `since`."""
        lines = [(at - since, line) for at, line in self.stderr.found if at <= until]
        said = statements.of_launcher(lines)
        for host, answers in enumerate(self.answers):
            if self.fault.kind == "partition" and host == self.fault.victim_host:
                continue  # nobody can ask there
            read = [json.loads(line) for at, line in answers.found if at <= until]
            said += statements.of_inspect({**answer, "at": answer["at"] - since} for answer in read)
        return Told(said, lines, self._steps)

    def watch(self, since: float, seconds: float, hear_all: bool) -> Told:
        """Wait for words: so long at most, or until the launcher has ended; else until both sources were heard."""
        heard_at = None
        while (now := time.monotonic()) < since + seconds and self.launcher.poll() is None:
            if not hear_all:
                told = self.told(since, now)
                times = [told.first(source) for source in SOURCES]
                if heard_at is None and any(at is not None for at in times):
                    heard_at, self._steps = now, self.steps_of(self.fault.victims[0])
                if None not in times or (heard_at is not None and now > heard_at + OTHER_S):
                    break
            time.sleep(0.1)
        if self.launcher.poll() is not None:
            self.stderr.await_end()
        return self.told(since, time.monotonic())


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextlib.contextmanager
def _lab(hosts: int, folder: Path) -> Iterator[Lab | None]:
    """A fresh one for each job, since a host that was cut off keeps processes of the job; none for one host."""
    if hosts == 1:
        yield None
        return
    (folder / "lab").mkdir()
    lab = Lab(folder / "lab")
    try:
        yield lab
    finally:
        lab.close()


def inject(fault: Fault, homes: Mapping[str, Path], flat_s: float) -> dict[str, Any]:
    """One fault, from the start of its job to its end: the record of it."""
    kind = BY_NAME[fault.kind]
    folder = Path(tempfile.mkdtemp(prefix="farandole-diagnosis-"))
    with _lab(fault.hosts, folder) as lab:
        job = Job(fault, folder, lab)
        try:
            job.start(homes[fault.framework], homes["asker"])
            since = job.await_moment()
            before = job.steps_of(fault.victims[0])
            told = job.watch(since, flat_s if kind.is_flat else kind.watched_s, kind.is_flat)
        finally:
            job.close()
    shutil.rmtree(folder)
    verdict = statements.judge(fault, kind, told.said)
    return {
        "fault": fault.plan(),
        "kind": fault.kind,
        "steps": max(0, told.steps - before),
        **verdict.as_json(),
        **told.as_json(),
    }
