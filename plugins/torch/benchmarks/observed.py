"""The cost of looking at a job while it trains: the flight recorder with the launcher's watch, and everything at once.

    python3 noxfile.py -s bench -- plugins/torch/benchmarks/observed.py --output docs/benchmarks/observed.md

Jobs of `farandole run` that differ only in what looks at them live at the same time, and take turns of some steps while
the others wait for a word. A figure is the time of a turn on rank 0, whose steps no rank leaves before the others come.
On a busy or virtual machine these differ by more than looking costs, so the target is judged by processor time: that of
the launcher's processes during the job's own turns beside all that the machine had, and that of the records. Ends with
1 where a target is missed.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tqdm import trange

NOTHING, RECORDED, EVERYTHING = "nothing", "recorder and watch", "page, metrics and timeline, too"
MODELS = {"small": (128, 2), "25 million parameters": (512, 8)}  # width, layers
LIMIT_PERCENT = 1.0
RECORD_S, RECORDER_LIMIT_PERCENT = 9e-9, 0.1  # a record costs a call in C so much
TURN_S = 0.5


@dataclass
class Job:
    """A job whose ranks wait for the number of steps to take, each at a pipe of its own."""

    what: str
    folder: Path
    ranks: int
    process: Any = None
    times: list[float] = field(default_factory=list)  # seconds a step
    operations: int = 0  # of a step
    steps: int = 0  # of a turn
    launcher_s: float = 0.0  # processor time of the launcher's processes during the turns

    def start(self, model: Sequence[int]) -> None:
        for rank in range(self.ranks):
            os.mkfifo(self.folder / f"steps.{rank}")
        os.mkfifo(self.folder / "times")
        options, environment = self._looks()
        worker = [sys.executable, __file__, "--worker", str(self.folder), *map(str, model)]
        words = [sys.executable, "-m", "farandole.launch", "run", "-np", str(self.ranks), *options, *worker]
        self.process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read_page, daemon=True).start()
        self._pipes = [open(self.folder / f"steps.{rank}", "w") for rank in range(self.ranks)]  # noqa: SIM115
        self._times = open(self.folder / "times")  # noqa: SIM115
        self.operations = int(self._times.readline())

    def _looks(self) -> tuple[list[str], dict[str, str]]:
        if self.what == NOTHING:
            return [], {**os.environ, "FARANDOLE_FLIGHT_RECORDER": "0"}
        if self.what == RECORDED:
            return [], dict(os.environ)
        return ["--live", "--metrics", str(free_port()), "--timeline-filename", str(self.folder / "trace.json")], dict(
            os.environ
        )

    def _read_page(self) -> None:
        """As a browser does: the page makes frames only while somebody reads them."""
        for line in self.process.stderr:
            sys.stderr.write(line)
            if found := re.search(r"live page: (http://\S+)", line):
                threading.Thread(target=self._drop_frames, args=(found[1],), daemon=True).start()

    @staticmethod
    def _drop_frames(url: str) -> None:
        with urllib.request.urlopen(f"{url}events") as frames:
            while frames.read1(1 << 16):
                pass

    def _spent_s(self) -> float:
        """Of the launcher's processes so far: they run the module, and ranks do not."""
        launcher = psutil.Process(self.process.pid)
        ours = [each for each in (launcher, *launcher.children(recursive=True)) if "farandole.launch" in each.cmdline()]
        return sum(each.cpu_times().user + each.cpu_times().system for each in ours)

    def turn(self, steps: int) -> float:
        """Seconds a step."""
        before_s = self._spent_s()
        try:
            return self._turn(steps)
        finally:
            self.launcher_s += self._spent_s() - before_s

    def _turn(self, steps: int) -> float:
        for pipe in self._pipes:
            pipe.write(f"{steps}\n")
            pipe.flush()
        return float(self._times.readline()) / steps

    def end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self.process.wait(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def work(folder: Path, width: int, layers: int) -> None:
    """A rank: it takes as many steps as it is told."""
    import farandole_torch as hvd
    import torch
    from run import LanguageModel, begin

    begin()
    torch.manual_seed(42)
    text = torch.randint(256, (2, 65))
    model = LanguageModel(width, layers, 64)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=1e-4), named_parameters=model.named_parameters()
    )

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()

    answers = folder / "times" if hvd.rank() == 0 else os.devnull
    with open(folder / f"steps.{hvd.rank()}") as told, open(answers, "w") as out:
        print(len(list(model.parameters())), file=out, flush=True)
        for line in told:
            hvd.barrier()
            began = time.perf_counter()
            for _ in range(int(line)):
                step()
            print(time.perf_counter() - began, file=out, flush=True)


def measure(model: Sequence[int], ranks: int, rounds: int) -> list[Job]:
    """All jobs of one model, after their turns."""
    with tempfile.TemporaryDirectory() as name:
        jobs = [Job(what, Path(name) / str(place), ranks) for place, what in enumerate([NOTHING, RECORDED, EVERYTHING])]
        for job in jobs:
            job.folder.mkdir()
            job.start(model)
        for job in jobs:
            job.turn(3)  # makes buckets, names and the optimizer's state
        steps = max(1, round(TURN_S / jobs[0].turn(3)))
        for job in jobs:
            job.launcher_s, job.steps = 0.0, steps
        for number in trange(rounds, desc=f"{ranks} ranks"):
            for job in jobs[number % 3 :] + jobs[: number % 3]:
                job.times.append(job.turn(steps))
        for job in jobs:
            job.end()
    return jobs


def percent_more(job: Job, bare: Job) -> tuple[float, float]:
    """By the median of the rounds' ratios, and by the least times."""
    ratios = [mine / other for mine, other in zip(job.times, bare.times, strict=True)]
    return (statistics.median(ratios) - 1) * 100, (min(job.times) / min(bare.times) - 1) * 100


def rows(name: str, ranks: int, jobs: Sequence[Job]) -> tuple[list[str], list[str]]:
    """Of the table, and the targets that are missed."""
    lines, missed = [], []
    for job in jobs:
        more, least_more = percent_more(job, jobs[0])
        of_records = job.operations * RECORD_S / min(job.times) * 100
        of_looking = job.launcher_s / (sum(job.times) * job.steps * (os.cpu_count() or 1)) * 100
        least, median = min(job.times) * 1e3, statistics.median(job.times) * 1e3
        lines.append(
            f"| {name} | {ranks} | {job.what} | {least:.2f} | {median:.2f} | "
            f"{more:+.2f} % | {least_more:+.2f} % | {of_looking:.2f} % | {of_records:.4f} % |"
        )
        if of_looking + of_records > LIMIT_PERCENT or of_records > RECORDER_LIMIT_PERCENT:
            missed.append(f"{job.what}, {name}, {ranks} ranks")
    return lines, missed


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what it costs a training job to be looked at.")
    parser.add_argument("--worker", nargs=3, metavar=("FOLDER", "WIDTH", "LAYERS"), help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--output", type=Path, help="also write the report to this file")
    args = parser.parse_args()
    if args.worker:
        work(Path(args.worker[0]), int(args.worker[1]), int(args.worker[2]))
        return
    lines, missed = heading(args.rounds), []
    for name, model in MODELS.items():
        for ranks in args.ranks:
            more, failed = rows(name, ranks, measure(model, ranks, args.rounds))
            lines, missed = [*lines, *more], [*missed, *failed]
    print("\n".join(lines), flush=True)
    if args.output:
        args.output.write_text("\n".join(lines) + "\n")
    if missed:
        sys.exit(f"missed: {'; '.join(missed)}")


def heading(rounds: int) -> list[str]:
    from run import processor

    return [
        "# Looking at a job",
        "",
        "Written by `python3 noxfile.py -s bench -- plugins/torch/benchmarks/observed.py`;",
        "[observed.py](../../plugins/torch/benchmarks/observed.py) says what is measured.",
        "",
        f"One machine: {os.cpu_count()} cores of {processor()}. Milliseconds a step of a transformer by",
        f"DistributedOptimizer, in {rounds} rounds. *Launcher* is the processor time of its processes beside all",
        f"that the machine had; *records* is what they cost at {RECORD_S * 1e9:.0f} ns each. The targets: less than",
        f"1 % of a step for both together, and less than {RECORDER_LIMIT_PERCENT} % for records alone.",
        "",
        "| model | ranks | looked at by | least | median | more, median of rounds | more, least | launcher | records |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]


if __name__ == "__main__":
    main()
