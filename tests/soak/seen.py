"""The processes of a job on the hosts of a lab, as seen from outside, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import Host

LAUNCHER, AGENT, RANK = "launcher", "agent", "rank"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """One process of the job."""

    kind: str
    pid: int  # outside of the lab
    host: str
    number: int = -1  # of a rank

    def use(self) -> tuple[int, int] | None:
        """Resident bytes, descriptors; None where it has ended."""
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            return pages * _PAGE_BYTES, len(os.listdir(f"/proc/{self.pid}/fd"))
        return None


def processes(hosts: Sequence[Host], program: str) -> list[Process]:
    """Those of a job that runs `program`, which is a word of its ranks' command lines."""
    spaces = {os.readlink(f"/proc/{host.pid}/ns/net"): host.name for host in hosts}
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace").split("\0")
            host = spaces.get(os.readlink(f"/proc/{name}/ns/net")) if "python" in words[0] else None
            if host is not None and (process := _process(int(name), host, words, program)) is not None:
                found.append(process)
    return found


def busy_s() -> float:
    """The time that the cores of this machine have been busy, with whatever, in seconds of one core."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cores_s(processes: Sequence[Process]) -> dict[int, float]:
    """By process, the time that it has had a core."""
    found = {}
    for process in processes:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            found[process.pid] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return found


def _process(pid: int, host: str, words: list[str], program: str) -> Process | None:
    if any(word.startswith("farandole.launch.head.") for word in words):
        return Process(AGENT, pid, host)
    if "farandole.launch" in words:
        return Process(LAUNCHER, pid, host)
    if program not in words:
        return None
    pairs = (each.partition("=") for each in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"))
    variables = {name: value for name, _, value in pairs}
    number = variables.get("FARANDOLE_JOINS") or variables.get("FARANDOLE_RANK")
    return None if number is None else Process(RANK, pid, host, int(number))


def left_behind(hosts: Sequence[Host], folder: Path, known: Sequence[str], limit_s: float) -> list[str]:
    """Processes, shared memory, sockets and files that are still there after this time.

    The folder of the flight recorder stays, without recordings.
    """
    until = time.monotonic() + limit_s
    while (left := [*_left_on(hosts), *_files(folder, known)]) and time.monotonic() < until:
        time.sleep(0.5)
    return left


def _left_on(hosts: Sequence[Host]) -> Iterator[str]:
    script = (
        "find /dev/shm -mindepth 1 ! -path /dev/shm/farandole-$(id -u); grep -ao '@farandole.*' /proc/net/unix; "
        'awk \'FNR > 1 && $4 == "0A" && $2 !~ /:0016$/ {print "listener " $2}\' /proc/net/tcp /proc/net/tcp6; '
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -a '^[^ ]*python'; done 2>/dev/null"
    )
    for host in hosts:
        yield from (f"{host.name}: {line[:150]}" for line in host.run(["sh", "-c", script]).stdout.splitlines())


def _files(folder: Path, known: Sequence[str]) -> Iterator[str]:
    yield from (str(path) for path in folder.iterdir() if path.name not in known)
