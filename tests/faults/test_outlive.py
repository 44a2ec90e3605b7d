"""Ranks that outlive their launcher: it is killed, they go on, and another launcher adopts them, or all end in time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

LIMIT_S = 60
pytestmark = pytest.mark.timeout(2 * LIMIT_S)

# Arguments: steps, then what ranks do at a step, as rank:step:what. Steps are noted in files, too, and wait for `go`.
PROGRAM = """
import os, signal, sys, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic

hvd.init()
me, steps = int(os.environ.get("FARANDOLE_JOINS") or hvd.rank()), int(sys.argv[1])
plan = {int(step): what for rank, step, what in (each.split(":") for each in sys.argv[2:]) if int(rank) == me}

@elastic.run
def train(state):
    print(f"epoch {hvd.rank()} of {hvd.size()}", flush=True)
    while state.step < steps:
        hvd.allreduce(np.ones(1000, np.float32), op=hvd.Average, name="step")
        state.step += 1
        print(f"finished {state.step}")
        sys.stdout.flush() if state.step % 3 else None
        what = plan.pop(state.step, "")
        if what == "wait":
            while not os.path.exists("go"):
                time.sleep(0.01)
        elif what == "chatter":
            for number in range(60_000):
                print("x" * 50, number, file=sys.stderr)
        elif what == "mistake":
            raise ValueError("a mistake")
        elif what:
            os.kill(os.getpid(), int(what))
        with open(f"step.{me}", "w") as file:
            file.write(str(state.step))
        state.commit()
        time.sleep(0.005)

state = elastic.ObjectState(step=0)
train(state)
print(f"ended {hvd.rank()} of {hvd.size()} at {state.step}", flush=True)
"""


@dataclass
class Launcher:
    """A launcher of a job, whose output goes to files so that it never waits for us."""

    process: subprocess.Popen[bytes]
    out_path: Path
    err_path: Path

    @property
    def out(self) -> str:
        return self.out_path.read_text()

    @property
    def err(self) -> str:
        return self.err_path.read_text()

    def inner(self) -> psutil.Process:
        (inner,) = psutil.Process(self.process.pid).children()
        return inner

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def await_word(self, word: str) -> None:
        """Until it stands in stderr."""
        while word not in self.err:
            assert self.process.poll() is None, self.err
            time.sleep(0.01)

    def finish(self, limit_s: float = LIMIT_S) -> int:
        return self.process.wait(limit_s)


@dataclass
class Job:
    """A job that outlives its launcher."""

    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    launchers: list[Launcher] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "job.json"

    def start(self, *arguments: object, seconds: float = 30, options: str = "") -> Launcher:
        given = ["-np", "3", "--min-np", "1", "--outlive-launcher", seconds, "--job-state", self.file]
        return self._launch("run", *given, *options.split(), "train.py", *arguments)

    def adopt(self, file: Path | None = None) -> Launcher:
        return self._launch("adopt", file or self.file)

    def _launch(self, *words: object) -> Launcher:
        name = f"launcher{len(self.launchers)}"
        paths = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with paths[0].open("wb") as out, paths[1].open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "farandole.launch", *map(str, words)],
                cwd=self.folder,
                env={**os.environ, "TEST_OUTLIVE_MARK": self.mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.launchers.append(Launcher(process, *paths))
        return self.launchers[-1]

    def await_step(self, step: int, rank: int = 0) -> None:
        """Until the rank has finished so many steps, and the file is there."""
        deadline = time.monotonic() + LIMIT_S
        while self.step(rank) < step or not self.file.exists() or not self.file.stat().st_size:
            assert time.monotonic() < deadline, [each.err for each in self.launchers]
            time.sleep(0.01)

    def step(self, rank: int) -> int:
        path = self.folder / f"step.{rank}"
        return int(path.read_text() or 0) if path.exists() else 0

    def go(self) -> None:
        """Let ranks that wait go on."""
        (self.folder / "go").touch()

    def left(self) -> list[psutil.Process]:
        """All processes of the job."""
        return [each for each in psutil.process_iter() if self._is_marked(each)]

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("TEST_OUTLIVE_MARK") == self.mark and process.status() != "zombie"
        except psutil.Error:
            return False

    def await_nothing(self, limit_s: float = 10.0) -> None:
        deadline = time.monotonic() + limit_s
        while left := self.left():
            assert time.monotonic() < deadline, [each.cmdline() for each in left]
            time.sleep(0.02)

    def steps_shown(self, rank: int) -> list[int]:
        """The steps of a rank as all launchers have shown them, in order; a step that is shown twice in a row counts
        once."""
        found = [
            int(step) for each in self.launchers for step in re.findall(rf"^\[{rank}\] finished (\d+)$", each.out, re.M)
        ]
        return [step for before, step in zip([0, *found], found, strict=False) if step != before]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    (tmp_path / "train.py").write_text(PROGRAM)
    made = Job(tmp_path)
    yield made
    for each in made.left():
        each.kill()
    for launcher in made.launchers:
        launcher.process.wait()


def ended(out: str) -> list[str]:
    return sorted(re.findall(r"ended (\d of \d at \d+)", out))


def test_another_launcher_goes_on_when_it_is_killed_and_so_does_a_third(job: Job) -> None:
    first = job.start(400, "0:390:wait")
    job.await_step(20)
    first.kill()
    job.await_step(job.step(0) + 20)  # nobody leads the job
    second = job.adopt()
    second.await_word("adopted 3 ranks on localhost")
    job.await_step(job.step(0) + 20)
    second.inner().kill()
    second.finish()
    assert f"farandole adopt {job.file}" in second.err
    third = job.adopt()
    third.await_word("adopted 3 ranks on localhost")
    job.go()
    assert third.finish() == 0, third.err
    assert third.err.count("\n") == 1
    assert ended(third.out) == [f"{rank} of 3 at 400" for rank in range(3)]
    for rank in range(3):
        shown = job.steps_shown(rank)
        assert set(shown) == set(range(1, 401)) and len(shown) < 420  # lines on the way at the kill may come twice
    job.await_nothing()
    assert not job.file.exists()


def test_a_rank_that_dies_without_a_launcher_is_decided_about_at_the_adoption(job: Job) -> None:
    first = job.start(100, "0:20:wait", "2:25:9", options="--max-np 3")
    job.await_step(19)
    first.kill()
    job.go()
    while any("train.py" in each.cmdline() for each in job.left()) and job.step(2) < 24:
        time.sleep(0.01)
    time.sleep(0.3)
    stood = job.step(0)
    assert stood in (24, 25)
    time.sleep(0.3)
    assert job.step(0) == stood  # the others have reported, and wait
    second = job.adopt()
    assert second.finish() == 0, second.err
    assert "rank 2 on localhost" in second.err and "killed by SIGKILL" in second.err and "2 ranks go on" in second.err
    assert ended(second.out)[-1].endswith("at 100") and len(ended(second.out)) in (2, 3)
    job.await_nothing()


@pytest.mark.parametrize(("plan", "code"), [("2:60:0", 0), ("1:60:mistake", 1)])
def test_a_job_that_ends_without_a_launcher_has_its_exit_code_and_output(job: Job, plan: str, code: int) -> None:
    first = job.start(60, "0:20:wait", *([plan] if code else []))
    job.await_step(19)
    first.kill()
    job.go()
    while any("train.py" in each.cmdline() for each in job.left()) and (code == 0 or job.step(0) < 59):
        time.sleep(0.01)
    time.sleep(0.2)
    second = job.adopt()
    assert second.finish() == code, second.err
    assert set(job.steps_shown(1)) == set(range(1, 61))
    if code:
        assert "rank 1 on localhost" in second.err and "ValueError: a mistake" in second.err
    else:
        assert ended(second.out) == [f"{rank} of 3 at 60" for rank in range(3)] and "adopted 0 ranks" in second.err
    job.await_nothing()
    assert not job.file.exists()


def test_ranks_are_not_held_up_by_output_that_nobody_reads(job: Job) -> None:
    first = job.start(40, "0:20:wait", "1:25:chatter")
    job.await_step(19)
    first.kill()
    job.go()
    job.await_step(40)
    second = job.adopt()
    assert second.finish() == 0, second.err
    dropped = re.search(r"([\d,]+) bytes of rank 1's output were dropped", second.err)
    kept = sum(len(line) - 3 for line in second.err.splitlines() if line.startswith("[1] "))
    assert dropped and "rank 0's" not in second.err and 0.9 * (1 << 20) < kept < 1.1 * (1 << 20)
    assert ended(second.out) == [f"{rank} of 3 at 40" for rank in range(3)]


def test_nothing_is_left_when_nobody_comes(job: Job) -> None:
    first = job.start(100_000, "2:30:9", seconds=1.5)
    job.await_step(20)
    first.kill()
    killed = time.monotonic()
    assert len(job.left()) > 3
    job.await_nothing()
    assert 1.4 < time.monotonic() - killed < 9
    assert not job.file.exists()
    late = job.adopt()
    assert late.finish() == 2 and "cannot be read: No such file" in late.err and late.err.count("\n") == 1


def test_one_launcher_at_a_time(job: Job, tmp_path: Path) -> None:
    first = job.start(100_000)
    job.await_step(5)
    copy = tmp_path / "copy.json"  # on another machine nothing locks it
    copy.touch(0o600)
    copy.write_bytes(job.file.read_bytes())
    early = [job.adopt(), job.adopt(copy)]
    assert [each.finish() for each in early] == [2, 2]
    assert "has a launcher on this host" in early[0].err and "has a launcher, which said something" in early[1].err
    assert all(each.err.count("\n") == 1 for each in early)
    first.kill()
    rivals = [job.adopt(), job.adopt(copy)]
    while all(each.process.poll() is None for each in rivals):
        time.sleep(0.01)
    (loser,) = (each for each in rivals if each.process.poll() is not None)
    (winner,) = (each for each in rivals if each is not loser)
    assert loser.process.returncode == 2 and loser.err.count("\n") == 1, loser.err
    job.await_step(job.step(0) + 20)
    winner.process.terminate()  # told to end, it ends the job
    assert winner.finish() == 128 + signal.SIGTERM
    job.await_nothing()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_launcher_that_is_told_to_end_ends_the_job(job: Job, signum: int) -> None:
    first = job.start(100_000)
    job.await_step(5)
    first.process.send_signal(signum)
    assert first.finish() == 128 + signum
    job.await_nothing(2.0)
    assert not job.file.exists() and "all 3 ranks are gone" in first.err


def test_agents_that_are_gone_are_one_sentence(job: Job) -> None:
    first = job.start(100_000)
    job.await_step(5)
    launcher = {first.process.pid, first.inner().pid}
    first.process.send_signal(signal.SIGSTOP)
    for each in job.left():
        if each.pid not in launcher:
            each.kill()
    first.inner().kill()
    first.kill()
    late = job.adopt()
    assert late.finish() == 2 and late.err.count("\n") == 1
    assert "nothing is left of this job: localhost: no agent of this job is there any more" in late.err
    assert not job.file.exists()


@pytest.mark.parametrize("words", [["--outlive-launcher", "5"], ["--min-np", "1", "--job-state", "x"]])
def test_options_that_need_others_say_so(run_once: Callable, words: list[str]) -> None:
    code, err = run_once(*words)
    assert code == 2 and err.count("\n") == 1 and ("give --min-np N" in err or "give --outlive-launcher" in err)


@pytest.fixture
def run_once(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "farandole.launch", "run", "-np", "2", *words, "true"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        return done.returncode, done.stderr

    return run
