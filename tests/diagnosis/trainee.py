"""A rank that trains until its fault comes: `trainee.py FOLDER` reads the plan there, which drawn.py has drawn.

Each rank writes its steps into FOLDER/steps, eight bytes at its own place. The victim writes the moment of its fault,
in seconds of the monotonic clock, into FOLDER/moment; other moments are written by injection.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from trainings import TRAININGS, Training

FOLDER = Path(sys.argv[1])
PLAN: dict[str, Any] = json.loads((FOLDER / "plan.json").read_text())
FAULT, FORM, PAUSE_S = PLAN["kind"], PLAN["form"], PLAN["pause_s"]
SLOWER = 1.2
BIG = 250_000  # elements: a megabyte, for which the link matters


def note_moment() -> None:
    """From now on the fault can be seen."""
    (FOLDER / "moment.new").write_text(str(time.monotonic()))
    (FOLDER / "moment.new").rename(FOLDER / "moment")


def signal_itself(signum: int) -> None:
    """At any place of the program: from another thread, some time later."""

    def act() -> None:
        time.sleep(PLAN["delay_s"])
        note_moment()
        os.kill(os.getpid(), signum)

    threading.Thread(target=act, daemon=True).start()


def load_batch(hangs: bool) -> None:
    """The data loader: it returns at once, or hangs as one does whose source is silent."""
    if not hangs:
        return
    note_moment()
    if FORM == 0:
        time.sleep(1e6)
    elif FORM == 1:
        threading.Event().wait()
    else:
        os.read(os.pipe()[0], 1)


def save_checkpoint(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with (FOLDER / "checkpoint").open("wb") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        time.sleep(0.05)


def evaluate(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


class Rank:
    """One rank and its part in the fault."""

    def __init__(self) -> None:
        self.training: Training = TRAININGS[PLAN["framework"]]()
        self.is_victim = self.training.rank in PLAN["victims"]
        self.random = random.Random(self.training.rank)
        self.sets = [(numbers, self.training.ranks(numbers)) for numbers in PLAN["sets"]]
        self.steps = os.open(FOLDER / "steps", os.O_RDWR)

    def run(self) -> None:
        step = 0
        while step < PLAN["most_steps"]:
            is_due = step == PLAN["step"]
            if self.is_victim and is_due and self.ends_the_loop():
                break
            self.take(step, is_due)
            step += 1
            os.pwrite(self.steps, step.to_bytes(8, "little"), 8 * self.training.rank)
        self.training.reduce("validation")
        self.training.leave()

    def ends_the_loop(self) -> bool:
        """True for a rank that has fewer batches than the others."""
        if FAULT == "kill":
            signal_itself(signal.SIGKILL)
        elif FAULT == "stop":
            signal_itself(signal.SIGSTOP)
        elif FAULT == "exception":
            note_moment()
            raise RuntimeError("the file of samples 17 is damaged")
        elif FAULT == "early exit":
            note_moment()
            if FORM == 0:
                sys.exit(0)
            os._exit(0)
        elif FAULT == "slower":
            note_moment()
        elif FAULT == "count" and FORM == 0:
            note_moment()
            return True
        return False

    def take(self, step: int, is_due: bool) -> None:
        """One step of the training, with the fault within where it is due."""
        strange = is_due and self.is_victim
        load_batch(strange and FAULT == "loader")
        self.compute(step)
        self.training.step()
        if FAULT == "slow link":
            self.training.reduce("embedding", BIG)
        self.metrics(strange)
        self.use_sets(strange and FAULT == "process sets")
        if step % PLAN["every"] == PLAN["every"] - 1 and self.training.rank == 0:
            if FAULT == "checkpoints":
                save_checkpoint(PLAN["busy_s"])
            elif FAULT == "evaluation":
                evaluate(PLAN["busy_s"])

    def compute(self, step: int) -> None:
        """Sleep, as other ranks need the processors of this machine."""
        slower = SLOWER if FAULT == "slower" and self.is_victim and step >= PLAN["step"] else 1.0
        jitter = self.random.uniform(0.7, 1.3) if FAULT == "jitter" else 1.0
        time.sleep(PAUSE_S * slower * jitter)

    def metrics(self, strange: bool) -> None:
        names, size = ["loss", "accuracy"], 2
        if strange and FAULT in ("order", "shape", "count"):
            note_moment()
            names = {"order": names[::-1], "shape": names, "count": names[:1] if FORM == 1 else [*names, "loss"]}[FAULT]
            size = 3 if FAULT == "shape" else 2
        for name in names:
            self.training.reduce(name, size)

    def use_sets(self, reversed_order: bool) -> None:
        sets = [(numbers, handle) for numbers, handle in self.sets if self.training.rank in numbers]
        if reversed_order:
            note_moment()
            sets.reverse()
        for numbers, handle in sets:
            self.training.reduce(f"mean over {len(numbers)}", 2, handle)


if __name__ == "__main__":
    Rank().run()
