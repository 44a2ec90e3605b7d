"""What a job has told its user and left behind, and what of that is wrong."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from failures.case import LINE, Case

MARK = "FAILURE_CASE"  # a variable of every process of a case
LEFT_LIMIT_S = 30.0
_OURS = "farandole: "
_BLAMED = re.compile(r"\brank (\d+) on (\S+)")


@dataclass
class Told:
    """What the user has been told, by text or by what `farandole.run` raised."""

    code: int | None
    out: str
    err: str
    is_call: bool
    raised: str = ""  # the names of its class and bases
    message: str = ""
    blamed: int | None = None
    caller: str = "unchanged"
    hosts: Mapping[int, str] = field(default_factory=dict)  # of ranks; others are on localhost
    left: list[str] = field(default_factory=list)

    @property
    def ours(self) -> str:
        """The launcher's own lines."""
        return self.message or "\n".join(line for line in self.err.splitlines() if line.startswith(_OURS))

    @property
    def all(self) -> str:
        return f"{self.out}\n{self.err}\n{self.message}"


def complaints(case: Case, told: Told) -> Iterator[str]:
    """Each is something that is wrong."""
    names = told.raised.split()
    is_the_launchers = "FarandoleError" in names or not told.is_call  # else what a rank raised
    if told.is_call and (case.error not in names if case.error else names):
        yield f"{' '.join(names) or 'nothing'} is raised, not {case.error or 'nothing'}"
    wanted = case.error_code if told.is_call and case.error_code != -1 else case.code
    if told.code != wanted:
        yield f"the exit code is {told.code}, not {wanted}"
    if told.caller != "unchanged":
        yield f"in the caller: {told.caller}"
    yield from _wrong_culprit(case, told, is_the_launchers)
    say = _facts(case.say) or [f"exit code {case.code}"] * bool(case.blame and is_the_launchers and not case.show)
    yield from (f"the launcher does not say {each!r}" for each in say if each not in told.ours)
    show = [case.line if each == LINE else each for each in _facts(case.show)]
    yield from (f"nobody shows {each!r}" for each in show if each not in told.all)
    yield from (f"{each!r} is shown" for each in _facts(case.hide) if each in told.all)
    yield from (
        f"{each!r} is shown {count} times" for each in _facts(case.once) if (count := told.all.count(each)) != 1
    )
    yield from (f"left behind: {each}" for each in told.left)


def _wrong_culprit(case: Case, told: Told, is_the_launchers: bool) -> Iterator[str]:
    found = _BLAMED.search(told.ours) if is_the_launchers else None
    blamed = told.blamed if told.is_call else int(found[1]) if found else None
    if blamed not in (case.blame or (None,)):
        yield f"rank {blamed} is blamed, not {case.blame or 'nobody'}"
    is_about_blamed = found is not None and int(found[1]) == blamed  # else the words of a job that the rank has run
    host = told.hosts.get(-1 if blamed is None else blamed, "localhost")
    if case.blame and found and is_about_blamed and found[2] != host:
        yield f"{found[2]} is blamed, not {host}"


def _facts(text: str) -> list[str]:
    return text.split(" | ") if text else []


def left_behind(
    mark: str, folders: Sequence[Path], others: Callable[[], Iterable[psutil.Process]], memory: set[str]
) -> list[str]:
    """What is still there after a while: processes, files in these folders, shared memory that is not in `memory`.

    Processes are those with the mark, and `others`. They are killed.
    """
    until = time.monotonic() + LEFT_LIMIT_S
    while True:
        processes = [*_marked(mark), *others()]
        files = [str(path) for folder in folders for path in folder.rglob("*") if not path.is_dir()]
        files += sorted(shared_memory() - memory)
        if not (processes or files) or time.monotonic() > until:
            break
        time.sleep(0.05)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            files.append(f"{process.pid} {' '.join(process.cmdline())}")
            process.kill()
    return files


def shared_memory() -> set[str]:
    """Farandole's files in /dev/shm; folders there are of other programs, and each case has its own flight records."""
    return {path.name for path in Path("/dev/shm").glob("*farandole*") if path.is_file()}


def _marked(mark: str) -> Iterator[psutil.Process]:
    sign = f"{MARK}={mark}\0".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, psutil.Error):
            if sign in Path(f"/proc/{pid}/environ").read_bytes():  # that of a zombie is empty
                yield psutil.Process(int(pid))


def processes_of(hosts: Sequence[psutil.Process]) -> list[psutil.Process]:
    """All of hosts of a lab, but for their first."""
    found: list[psutil.Process] = []
    for host in hosts:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has crashed
            found += host.children(recursive=True)
    return found
