"""Namespaces without names, which vanish with their processes.

    unshare             of the test's process
    └─ cat              process 1 of the lab: it ends when the pipe from the test's process closes
       └─ sshd          process 1 of a host, in namespaces of its own

The kernel kills what is in a PID namespace when its process 1 ends, with all namespaces below it. So nothing outlives
the test's process, even one that is killed. A plain user gets the same within a user namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Any

import psutil

IS_ROOT = os.geteuid() == 0
LIMIT_S = 20.0
# Where Debian has programs for root, which a plain user's PATH may lack.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


class CannotMake(Exception):
    """This machine, or its user's rights, cannot have a lab; says why."""


def program(name: str) -> str:
    """The path of a program."""
    if found := shutil.which(name, path=PATH):
        return found
    raise CannotMake(f"a lab of hosts needs the program {name}")


def start_and_await_line(command: Sequence[str]) -> tuple[subprocess.Popen[str], str]:
    """Starts a process with pipes; returns it with its first line of output, or with its errors where it ends."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Ctrl-C in a terminal must leave the lab to the test, which takes it down.
    process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    assert process.stdout is not None and process.stderr is not None
    return process, process.stdout.readline() or process.stderr.read()


def end(process: subprocess.Popen[Any]) -> None:
    """Closes the pipes of a process, which ends it, and awaits that."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    process.wait(LIMIT_S)


def innermost(process: subprocess.Popen[Any]) -> int:
    """The PID of the last descendant: nsenter and unshare fork."""
    return int(psutil.Process(process.pid).children(recursive=True)[-1].pid)


class Namespaces:
    """The namespaces of a lab, whose network namespace is the switch, and ways into them and into those of hosts."""

    def __init__(self) -> None:
        user = [] if IS_ROOT else ["--user", "--map-root-user"]
        kinds = ["--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
        command = [program("unshare"), *user, *kinds, "sh", "-c", "echo up; exec cat"]
        self._process, said = start_and_await_line(command)
        if said != "up\n":
            end(self._process)
            raise CannotMake(f"this user cannot make namespaces: {said.strip()}")
        self.pid = innermost(self._process)

    def close(self) -> None:
        """Ends every process of the lab."""
        end(self._process)

    def enter(self, pid: int, *kinds: str) -> list[str]:
        """The start of a command within these namespaces of a process, with the rights of the lab's root."""
        user = [] if IS_ROOT else [f"--user=/proc/{self.pid}/ns/user", "--preserve-credentials"]
        return [program("nsenter"), f"--target={pid}", *user, *(f"--{kind}" for kind in kinds), "--"]

    def start_first_process(self, *command: str) -> subprocess.Popen[str]:
        """Starts process 1 of a host, in new namespaces; it says a line first."""
        kinds = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]
        inside = self.enter(self.pid, "mount", "pid")
        process, said = start_and_await_line([*inside, program("unshare"), *kinds, *command])
        if said != "up\n":
            end(process)
            raise RuntimeError(f"a host does not start: {said.strip()}")
        return process

    def configure(self, pid: int, name: str, *arguments: str, batch: Sequence[str] = ()) -> str:
        """Runs ip or tc in the network namespace of a process; `batch` holds lines for `ip -batch -`."""
        command = [*self.enter(pid, "net"), program(name), *arguments]
        text = "\n".join(batch)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} {' '.join(arguments)}: {done.stderr.strip()}\n{text}")
        return done.stdout


class ProcessInside(subprocess.Popen[Any]):
    """A process within a host. Its `pid` is that of nsenter, which waits for it and ends as it does."""

    @property
    def inner_pid(self) -> int:
        """The PID, outside of the host, of the process itself."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and self.poll() is None:
            if children := psutil.Process(self.pid).children():
                return int(children[0].pid)
            time.sleep(0.001)
        raise ProcessLookupError(f"{self.args!r} has ended")

    def send_signal(self, sig: int) -> None:
        """Signals the process itself, as do `kill` and `terminate`."""
        if self.poll() is None:
            os.kill(self.inner_pid, sig)
