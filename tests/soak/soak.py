"""An elastic job of 8 ranks on 4 lab hosts, and a fault every 15 s, takes steps as if there were none.

    python3 noxfile.py -s soak_elastic                  two minutes
    python3 noxfile.py -s soak_elastic -- 3600          an hour
    python3 noxfile.py -s soak_elastic -- 60 --seed 7 --only kill,stop

Ends with 1 where a target is missed. FARANDOLE_SOAK_S is the time, too. The output of the job is in the folder that
the first line names, and stays there then.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import judge
import seen
from faults import KINDS, Deck
from lab import Host, Lab
from rank import BORN, READY, SIZE, STEP, STEP_AT, read_marks
from report import Report

HOSTS, SLOTS = 4, 2
BASELINE_S = 15.0
PAUSE_OF_STEP_S = 0.004
_LOOK_S, _SAMPLE_S, _START_S = 0.02, 1.0, 60.0
_PROGRAM = str(Path(__file__).with_name("rank.py"))
_SCRIPT = """#!/bin/sh
cd {folder}
case $(cat lie) in
nothing) exit 0;;
nonsense) echo '%% <html> 503'; head -c 300 /dev/urandom;;
absent) cat hosts; echo not-there:2;;
hang) sleep 1000;;
*) cat hosts;;
esac
"""


class Soak:
    """One run; the scene of its faults."""

    def __init__(self, lab: Lab, folder: Path, given: argparse.Namespace) -> None:
        self.random = Random(given.seed)
        self.hosts: Sequence[Host] = lab.hosts(HOSTS)
        self.folder = folder
        self.every_s = given.every
        keeps = [each for each in given.only.split(",") if each]
        self.report = Report()
        self.steps = judge.Steps()
        self.job: Any = None
        self._lab = lab
        self._deck = Deck([kind for kind in KINDS if not keeps or kind.name in keeps], self.random)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._processes: list[seen.Process] = []
        self._marks: dict[int, tuple[float, ...]] = {}
        self._sampled_at = 0.0
        self._busy: tuple[float, float, dict[int, float]] | None = None
        self._said = 0  # bytes of the launcher's stderr that were read

    # ---- The job

    def start(self) -> None:
        """Start the launcher, and wait until all ranks take steps."""
        (self.folder / "marks").mkdir()
        (self.folder / "discover").write_text(_SCRIPT.format(folder=self.folder))
        (self.folder / "discover").chmod(0o755)
        self.list_hosts(self.hosts)
        self._launch()
        until = time.monotonic() + _START_S
        while len([rank for rank in self._marks.values() if rank[STEP] > 0]) < HOSTS * SLOTS:
            if time.monotonic() > until or self.job.poll() is not None:
                raise SystemExit(f"the job does not start: {(self.folder / 'stderr').read_text()}")
            self._look()
            time.sleep(_LOOK_S)

    def _launch(self) -> None:
        ranks = str(HOSTS * SLOTS)
        words = ["-np", ranks, "--min-np", "1", "--max-np", ranks, "--blacklist-cooldown-range", "1", "4"]
        words += ["--host-discovery-script", str(self.folder / "discover")]
        (self.folder / "tmp").mkdir()
        self._start(["run", *words, "--", sys.executable, _PROGRAM, str(self.folder), str(PAUSE_OF_STEP_S)])

    def _start(self, words: Sequence[str]) -> None:
        command = ["env", f"FARANDOLE_SSH={' '.join(self._lab.ssh_command)}", f"TMPDIR={self.folder / 'tmp'}"]
        command += [sys.executable, "-m", "farandole.launch", *words]
        with (self.folder / "stdout").open("ab") as stdout, (self.folder / "stderr").open("ab") as stderr:
            self.job = self.hosts[0].start(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )

    # ---- The scene

    def ranks(self) -> list[seen.Process]:
        ready = {number for number, marks in self._marks.items() if marks[READY]}
        return [each for each in self._see() if each.kind == seen.RANK and each.number in ready]

    def others(self, kind: str) -> list[seen.Process]:
        return [each for each in self._see() if each.kind == kind]

    def hit(self, ranks: Sequence[seen.Process]) -> None:
        self.report.hit |= {rank.number for rank in ranks}

    def stopped(self, seconds: float) -> None:
        now = time.monotonic()
        self.report.stopped.append((now, now + seconds))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time.monotonic() + seconds, next(self._order), action))

    def list_hosts(self, hosts: Sequence[Host], lie: str = "") -> None:
        for name, text in {"hosts": "".join(f"{host.name}:{SLOTS}\n" for host in hosts), "lie": lie}.items():
            (self.folder / f"{name}.new").write_text(text)
            (self.folder / f"{name}.new").rename(self.folder / name)

    # ---- The run

    def run(self, seconds: float) -> None:
        """A time without faults, then faults; the job is told to end after the last one had its time."""
        self.report.begin = time.monotonic()
        end = self.report.begin + BASELINE_S + seconds
        self.report.calm = (self.report.begin, self.report.begin + BASELINE_S)
        self.later(BASELINE_S, lambda: self._next_fault(end))
        while time.monotonic() < end and self.job.poll() is None:
            while self._agenda and self._agenda[0][0] <= time.monotonic():
                heapq.heappop(self._agenda)[2]()
            self._look()
            time.sleep(_LOOK_S)
        self.report.end = time.monotonic()
        self._finish()

    def _next_fault(self, end: float) -> None:
        now = time.monotonic()
        if not self.report.end and now + self.every_s <= end + 1:
            self.later(self.every_s, lambda: self._next_fault(end))
            if self.ranks():
                kind = self._deck.draw()
                self.report.faults.append((now, kind.name, kind.act(self)))
                print(f"{now - self.report.begin:6.1f} s  {kind.name}: {self.report.faults[-1][2]}", flush=True)

    def _look(self) -> None:
        """Take in the marks of the ranks and the sentences of the launcher."""
        now = time.monotonic()
        for path in (self.folder / "marks").iterdir():
            self._marks[int(path.name)] = read_marks(path)
        for marks in self._marks.values():
            if marks[STEP]:
                self.steps.saw(marks[STEP_AT], marks[STEP])
        if now - self._sampled_at >= _SAMPLE_S:
            self._sampled_at = now
            processes = self._see()
            self._weigh(now, processes)
            last = max(self._marks.values(), key=lambda marks: marks[STEP_AT], default=None)
            if last is not None and last[SIZE] == HOSTS * SLOTS:
                uses = {process: process.use() for process in processes}
                self.report.uses.append({process: use for process, use in uses.items() if use is not None})
        with (self.folder / "stderr").open("rb") as file:
            file.seek(self._said)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._said += len(whole)
        self.report.lines += [(now, line) for line in whole.decode(errors="replace").splitlines()]

    def _weigh(self, now: float, processes: Sequence[seen.Process]) -> None:
        """Note how busy the cores are, by the job and by others."""
        busy_s, of_job = seen.busy_s(), seen.cores_s(processes)
        if self._busy is not None:
            at, busy_before, before = self._busy
            mine = sum(of_job[pid] - before.get(pid, 0.0) for pid in of_job)
            self.report.loads.append((now, mine / (now - at), (busy_s - busy_before) / (now - at)))
        self._busy = now, busy_s, of_job

    def _see(self) -> list[seen.Process]:
        return seen.processes(self.hosts, _PROGRAM)

    def _finish(self) -> None:
        while self._agenda:  # all that was stopped or cut off goes on
            _, _, action = heapq.heappop(self._agenda)
            action()
        (self.folder / "stop").touch()
        try:
            self.report.code = self.job.wait(40)
        except subprocess.TimeoutExpired:
            self.report.stuck = [f"{each.kind} {each.number} on {each.host}, pid {each.pid}" for each in self._see()]
            self.job.kill()
            self.job.wait(20)
        self._look()
        self.report.imports = [
            (marks[BORN], marks[READY] or self.report.end)
            for number, marks in self._marks.items()
            if number >= HOSTS * SLOTS and marks[BORN]
        ]
        self.report.sizes = [int(marks[SIZE]) for marks in self._marks.values() if marks[STEP_AT] > self.report.end]
        known = ["marks", "discover", "hosts", "lie", "stdout", "stderr", "stop", "tmp", "lab"]
        left = seen.left_behind(self.hosts, self.folder, known, 40.0)
        self.report.left = [*left, *map(str, (self.folder / "tmp").iterdir())]


def soak(given: argparse.Namespace) -> bool:
    """Run one job and print its report. Returns whether all targets are reached."""
    folder = Path(tempfile.mkdtemp(prefix="farandole-soak-"))
    (folder / "lab").mkdir()
    print(f"==> {given.seconds:.0f} s, seed {given.seed}, output in {folder}", flush=True)
    lab = Lab(folder / "lab")
    try:
        run = Soak(lab, folder, given)
        run.start()
        run.run(given.seconds)
    finally:
        lab.close()
    print(run.report.text(run.steps), flush=True)
    if run.report.missed(run.steps):
        (folder / "rates").write_text(run.report.rates(run.steps))
        return False
    shutil.rmtree(folder)
    return True


def main() -> int:
    """Run a job for so many seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=float, default=float(os.environ.get("FARANDOLE_SOAK_S") or 120))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults")
    parser.add_argument("--only", default="", help="kinds of faults, with commas between them")
    return 0 if soak(parser.parse_args()) else 1


if __name__ == "__main__":
    sys.exit(main())
