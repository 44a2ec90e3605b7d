"""A failure as data, and the programs that fail."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

HEAD = """\
import atexit, ctypes, os, pathlib, resource, signal, subprocess, sys, threading, time

OURS = "farandole: rank 0 on h9 (pid 1) failed first: exit code 99 after 0.1 s; it printed nothing."

def ready(rank):
    pathlib.Path(f"ready.{rank}").write_text(str(os.getpid()))

def die(name):
    number = getattr(signal, f"SIG{name}")
    if name not in ("KILL", "STOP"):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

def leave(words):
    subprocess.Popen(["sh", "-c", words], start_new_session=True)

def train():
    rank = int(os.environ["FARANDOLE_RANK"])
"""
STEPS = """\
import numpy as np, farandole.numpy as hvd
hvd.init()
for step in range(100_000):
    hvd.allreduce(np.ones(4), name="x")
    if step == 3:
        ready(rank)
    if step == 5 and rank == 1:
        FAIL
    time.sleep(0.002)
"""
ALONE = """\
if rank == 1:
    FAIL
ready(rank)
time.sleep(100)
"""
EACH = """\
FAIL
"""
JOINS = """\
import numpy as np, farandole.numpy as hvd
FAIL
"""

LINE = "{line}"  # in `show`: the place of `fail` in a traceback, or that of its line with "# here"
ANY, NOBODY = (0, 1, 2), ()  # ranks to blame
ALL = "command hosts script thread asyncio script-hosts"
HERE, THREE = "command script thread asyncio", "command hosts script"
BOTH, PAIR = "command hosts", "command script"


@dataclass(frozen=True)
class Case:
    """One failure; see the package. `farandole.run` raises an `error`, whose `exit_code` may be another than `code`.

    `say`, `show`, `hide` and `once` have facts with " | " between them. Without `say`, who blames a rank must say
    "exit code N".
    """

    name: str
    fail: str
    code: int
    say: str = ""
    show: str = ""
    hide: str = ""
    once: str = ""  # shown exactly once
    blame: tuple[int, ...] = (1,)
    program: str = STEPS
    ranks: int = 3
    options: str = ""
    command: str = "train.py"
    env: Mapping[str, str] = field(default_factory=dict)
    before: str = ""  # what a shell does before it starts the launcher
    redirect: str = ""  # of the launcher, as a shell has it
    do: str = ""
    ways: str = "command"
    quick: str = ""
    error: str = "FarandoleError"  # "": it returns
    error_code: int | None = -1  # -1: as `code`

    @property
    def text(self) -> str:
        """The program of the ranks, without its call."""
        body = ""
        for line in self.program.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            body += textwrap.indent(self.fail, indent) + "\n" if line.strip() == "FAIL" else line + "\n"
        return HEAD + textwrap.indent(body, "    ")

    @property
    def all_ways(self) -> list[str]:
        """Those of `ways`, and "library" where only the program is of interest."""
        has_words = self.options + self.before + self.redirect + self.do or self.command != "train.py"
        return [*self.ways.split(), *["library"] * ("command" in self.ways and self.ranks > 0 and not has_words)]

    @property
    def line(self) -> str:
        """The place at which it fails, as tracebacks have it."""
        marks, lines = ("# here", self.fail.partition("\n")[0]), self.text.splitlines()
        at = next(at for mark in marks for at, line in enumerate(lines) if mark in line)
        return f'train.py", line {at + 1}'


steps, alone, each = Case, partial(Case, program=ALONE), partial(Case, program=EACH)
joins = partial(Case, program=JOINS)
two = partial(Case, program=STEPS.replace("rank == 1", "rank > 0"))
every = partial(Case, program=STEPS.replace("rank == 1", "True"))
