"""Ranks that outlive their launcher: it is killed, they go on, and another launcher adopts them, or all end in time.

FARANDOLE_LONG=1: also many kills, a job that ends well meanwhile, and an adopter that is told to end.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

LONG = bool(os.environ.get("FARANDOLE_LONG"))
LIMIT_S = 60
pytestmark = pytest.mark.timeout(2 * LIMIT_S)

# Arguments: steps, then what ranks do at a step, as rank:step:what. Steps are noted in files, too.
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
            while not os.path.exists(f"go.{state.step}"):
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

    def start(self, *arguments: object, ranks: int = 2, seconds: float = 30, options: str = "") -> Launcher:
        given = ["-np", ranks, "--min-np", "1", "--outlive-launcher", seconds, "--job-state", self.file]
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
            assert time.monotonic() < deadline, self.describe()
            time.sleep(0.01)

    def describe(self) -> str:
        """The state of a job that does not go on."""
        steps = {path.name: path.read_text() for path in sorted(self.folder.glob("step.*"))}
        return "\n".join([f"{steps}", *map(str, self.left()), *(each.err for each in self.launchers)])

    def step(self, rank: int) -> int:
        path = self.folder / f"step.{rank}"
        return int(path.read_text() or 0) if path.exists() else 0

    def go(self, step: int) -> None:
        """Let ranks go on that wait at this step."""
        (self.folder / f"go.{step}").touch()

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
            assert time.monotonic() < deadline, left
            time.sleep(0.02)

    def kill_a_rank(self, drawn: random.Random) -> None:
        """One of three that have trained for a while, so that others can go on."""
        ranks = []
        for each in self.left():
            with contextlib.suppress(psutil.NoSuchProcess):  # one of a launcher that was just killed
                if "train.py" in each.cmdline()[1:2]:
                    ranks.append(each)
        if len(ranks) == 3 and min(time.time() - each.create_time() for each in ranks) > 4:
            drawn.choice(ranks).kill()

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


def test_launchers_follow_each_other_and_there_is_one_at_a_time(job: Job) -> None:
    first = job.start(300, "0:100:wait", "0:200:wait", "0:290:wait")
    job.await_step(99)
    copy = job.folder / "copy.json"  # nothing locks it, as on another machine
    copy.touch(0o600)
    copy.write_bytes(job.file.read_bytes())
    early = [job.adopt(), job.adopt(copy)]
    assert [each.finish() for each in early] == [2, 2]
    assert "has a launcher on this host" in early[0].err and "has a launcher, which said something" in early[1].err
    first.kill()
    job.go(100)
    job.await_step(199)  # nobody leads the job
    rivals = [job.adopt(), job.adopt(copy)]
    while all(each.process.poll() is None for each in rivals):
        time.sleep(0.01)
    second, loser = sorted(rivals, key=lambda each: each.process.poll() is not None)
    assert loser.finish() == 2
    assert all(each.err.count("\n") == 1 for each in [*early, loser]), loser.err
    second.await_word("adopted 2 ranks on localhost")
    job.go(200)
    job.await_step(289)
    second.inner().kill()
    second.finish()
    assert "farandole adopt /" in second.err
    third = job.adopt()
    third.await_word("adopted 2 ranks on localhost")
    job.go(290)
    assert third.finish() == 0 and third.err.count("\n") == 1, third.err
    assert ended(third.out) == [f"{rank} of 2 at 300" for rank in range(2)]
    for rank in range(2):
        shown = job.steps_shown(rank)
        assert set(shown) == set(range(1, 301)) and len(shown) < 320  # lines on the way at the kill may come twice
    job.await_nothing()
    assert not job.file.exists()


def test_a_death_without_a_launcher_is_decided_at_the_adoption_and_output_holds_nobody_up(job: Job) -> None:
    first = job.start(60, "0:10:wait", "1:20:chatter", "2:25:9", ranks=3, options="--max-np 3")
    job.await_step(9)
    first.kill()
    job.go(10)
    job.await_step(24, rank=2)
    time.sleep(0.5)
    assert job.step(0) <= 25  # the others have reported, and wait
    second = job.adopt()
    assert second.finish() == 0, second.err
    assert "rank 2 on localhost" in second.err and "killed by SIGKILL" in second.err and "2 ranks go on" in second.err
    assert ended(second.out)[-1].endswith("at 60") and len(ended(second.out)) in (2, 3)  # the newcomer may be late
    dropped = re.search(r"([\d,]+) bytes of rank 1's output were dropped", second.err)
    kept = sum(len(line) - 3 for line in second.err.splitlines() if line.startswith("[1] "))
    # The oldest output is dropped in pieces, of up to 128 KiB.
    assert dropped and "rank 0's" not in second.err and 0.87 * (1 << 20) < kept < 1.01 * (1 << 20)
    job.await_nothing()


@pytest.mark.parametrize(("plan", "code"), [((), 0), (("1:60:mistake",), 1)] if LONG else [(("1:60:mistake",), 1)])
def test_a_job_that_ends_without_a_launcher_has_its_exit_code_and_output(
    job: Job, plan: tuple[str, ...], code: int
) -> None:
    first = job.start(60, "0:10:wait", *plan)
    job.await_step(9)
    first.kill()
    job.go(10)
    job.await_step(60 if code == 0 else 59)
    time.sleep(0.5)
    second = job.adopt()
    assert second.finish() == code, second.err
    assert set(job.steps_shown(1)) == set(range(1, 61))
    if code:
        assert "rank 1 on localhost" in second.err and "ValueError: a mistake" in second.err
    else:
        assert ended(second.out) == [f"{rank} of 2 at 60" for rank in range(2)]
    job.await_nothing()
    assert not job.file.exists()


def test_nothing_is_left_when_nobody_comes(job: Job) -> None:
    first = job.start(100_000, "0:25:wait", "1:30:9", seconds=1.5)
    job.await_step(20)
    copy = job.folder / "copy.json"
    copy.touch(0o600)
    copy.write_bytes(job.file.read_bytes())
    first.kill()
    killed = time.monotonic()
    assert len(job.left()) > 3 or time.monotonic() - killed > 1.4
    job.go(25)
    job.await_nothing(LIMIT_S / 2)  # minutes before it would have done its steps
    assert time.monotonic() - killed > 1.4
    assert not job.file.exists()
    late = [job.adopt(), job.adopt(copy)]
    assert [each.finish() for each in late] == [2, 2] and all(each.err.count("\n") == 1 for each in late)
    assert "cannot be read: No such file" in late[0].err
    assert "nothing is left of this job: localhost: no agent of this job is there any more" in late[1].err
    assert not copy.exists()


@pytest.mark.parametrize("is_adopter", [False, True] if LONG else [False])
def test_a_launcher_that_is_told_to_end_ends_the_job(job: Job, is_adopter: bool) -> None:
    launcher = job.start(100_000)
    job.await_step(5)
    if is_adopter:
        launcher.kill()
        launcher = job.adopt()
        launcher.await_word("adopted")
    launcher.process.send_signal(signal.SIGINT)
    assert launcher.finish() == 128 + signal.SIGINT
    job.await_nothing()
    assert not job.file.exists() and "all 2 ranks are gone" in launcher.err


# Ranks train until a file is there.
UNTIL = """
import os, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic

hvd.init()
me = os.environ.get("FARANDOLE_JOINS") or hvd.rank()

@elastic.run
def train(state):
    while not state.stops:
        state.stops = bool(hvd.allreduce(np.full(1000, float(os.path.exists("stop"))), op=hvd.Max, name="step")[0])
        state.step += 1
        print(f"finished {state.step}", flush=True)
        with open(f"step.{me}", "w") as file:
            file.write(str(state.step))
        state.commit()
        time.sleep(0.005)

state = elastic.ObjectState(step=0, stops=False)
train(state)
"""


@pytest.mark.parametrize("seed", range(10 if LONG else 1))
def test_launchers_and_ranks_that_are_killed_at_drawn_times_cost_no_line_and_no_job(job: Job, seed: int) -> None:
    """Both processes of the launcher or one of them; ranks before, after, or while nobody leads the job."""
    drawn = random.Random(seed)
    (job.folder / "train.py").write_text(UNTIL)
    launcher = job.start(ranks=3, options="--max-np 3 --blacklist-cooldown-range 0.2 1")
    job.await_step(20)
    for _ in range(8 if LONG else 2):
        if drawn.random() < 0.5:
            job.kill_a_rank(drawn)
        time.sleep(drawn.choice([0, drawn.uniform(0, 2)]))
        children = psutil.Process(launcher.process.pid).children()
        whom = drawn.choice(["outer", "inner", "both"])
        for child in children if whom != "outer" else []:
            child.kill()
        if whom != "inner" or not children:
            launcher.process.kill()
        launcher.finish()
        if drawn.random() < 0.4:
            job.kill_a_rank(drawn)
        time.sleep(drawn.choice([0, drawn.uniform(0, 2)]))
        launcher = job.adopt()
    (job.folder / "stop").touch()
    assert launcher.finish() == 0, launcher.err
    for rank in range(3):
        shown = set(job.steps_shown(rank))
        assert shown == set(range(1, max(shown) + 1)), rank
    job.await_nothing()
    assert not job.file.exists()
