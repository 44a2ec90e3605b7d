"""Starts ranks on this machine: finds the command, makes the job's secret, forks one process per rank."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole.launch import guard
from farandole.launch.hosts import bracketed
from farandole.launch.placement import JobError, Placement

KEY_BYTES = 32
NOT_FOUND = 127
NOT_EXECUTABLE = 126
_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*|(?:ba|da|k|z)?sh")
_HAS_PROGRAM = re.compile(r"-[A-Za-z]*[cmVh?]|--(?:version|help)")  # or needs none
_WITH_VALUE = {"-W", "-X", "-o"}


class CommandError(Exception):
    """The command cannot be run; the message is one sentence for the user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(eq=False)
class Rank:
    """A running rank. The pipes belong to whoever relays them."""

    placement: Placement
    process: subprocess.Popen[bytes]
    started_at: float
    stdout: int
    stderr: int
    outcome: int = -1  # of a rank that calls a function

    @property
    def pid(self) -> int:
        """Its process, session and process group."""
        return self.process.pid


def resolve_command(words: Sequence[str], module: bool, path: str | None) -> list[str]:
    """The user's command -> the command to execute; the first word becomes a path. REQUIRES at least one word."""
    name, rest = words[0], list(words[1:])
    if module:
        return [sys.executable, "-m", name, *rest]
    if name.endswith(".py") and os.path.isfile(name):
        return [os.path.abspath(name), *rest] if _is_executable_script(name) else [sys.executable, name, *rest]
    found = shutil.which(name, path=path)
    if found is not None:
        return [found, *rest]
    if os.path.isdir(name):
        raise CommandError(f"{name} is a directory, not a command.", NOT_EXECUTABLE)
    if os.sep in name and os.path.exists(name):
        raise CommandError(f"{name} may not be executed: chmod +x {name}, or name its interpreter.", NOT_EXECUTABLE)
    where = "no such file" if os.sep in name or name.endswith(".py") else "no such command in PATH"
    raise CommandError(f"{name}: {where}.", NOT_FOUND)


def check_program(words: Sequence[str], ranks: int, by_agents: bool = False) -> None:
    """Raises JobError where a rank would read an empty program from stdin, which only rank 0 on this host gets."""
    if (ranks > 1 or by_agents) and _reads_program_from_stdin(words):
        who = "ranks on other hosts do not get" if by_agents else "only rank 0 gets: the other ranks would run nothing"
        raise JobError(
            f"{shlex.join(words)} reads the program from stdin, which {who}. Write the program to a file, and run that."
        )


def _reads_program_from_stdin(words: Sequence[str]) -> bool:
    """True for `python -`, `python` and `sh -s`; not for `python train.py`, `python -m x`, `sh -c x`, `python -V`."""
    if not _INTERPRETER.fullmatch(os.path.basename(words[0])):
        return False
    arguments = iter(words[1:])
    for word in arguments:
        if word in ("-", "/dev/stdin"):
            return True
        if not word.startswith("-") or _HAS_PROGRAM.match(word):
            return False
        if word in _WITH_VALUE:
            next(arguments, None)
    return True


def _is_executable_script(path: str) -> bool:
    if not os.access(path, os.X_OK):
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def make_key(key: bytes | None = None) -> int:
    """A descriptor of the job's secret, by default a new one: sealed memory, not on disk, gone with this process."""
    descriptor = os.memfd_create("farandole-key", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, key or os.urandom(KEY_BYTES))
    os.fchmod(descriptor, 0o400)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def make_call() -> int:
    """A descriptor of memory for the function that ranks call, which is gone with the processes that hold it."""
    descriptor = os.memfd_create("farandole-call", os.MFD_CLOEXEC)
    os.fchmod(descriptor, 0o400)
    return descriptor


def path_for_ranks(descriptor: int) -> str:
    """Where ranks open it: the kernel lets only the same user look into /proc/<pid>/fd."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def make_store() -> str:
    """An abstract Unix socket name that nobody can guess, for rank 0 to bind."""
    return f"unix:farandole-{os.urandom(16).hex()}"


def reserve_port(address: str = "127.0.0.1") -> socket.socket:
    """Holds a port of this machine for rank 0, which can listen there: torch.distributed asks for its number.

    As long as the socket is open the kernel gives the port to nobody who does not name it.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((address, 0))
    return reserved


def reserve_endpoints(address: str) -> tuple[list[socket.socket], str, int]:
    """Two ports that rank 0 will listen at, held: the rendezvous endpoint, and the port for torch.distributed."""
    held = [reserve_port(address) for _ in range(2)]
    store, master = (each.getsockname()[1] for each in held)
    return held, f"tcp:{bracketed(address)}:{store}", master


def cores_of(placement: Placement, cores: Sequence[int]) -> list[int]:
    """The cores of a rank that is bound: its share of these. Where there are more ranks than cores, they take turns."""
    share = max(1, len(cores) // placement.local_size)
    first = placement.local_rank * share % len(cores)
    return list(cores[first : first + share])


def start(
    command: Sequence[str],
    placement: Placement,
    environment: Mapping[str, str],
    gets_stdin: bool = True,
    bind_to: str = "none",
    call: str = "",
    has_threads: bool = False,
) -> Rank:
    """Start one rank; rank 0 gets our stdin, unless that is for nobody. `bind_to`: "core" gives each its own cores.

    `call`: where the rank reads the function that it calls. This path, and the number of the descriptor to which it
    writes its outcome, are its last two arguments.

    REQUIRES one thread and signals of guard.HANDLED blocked: the child runs Python until it executes the command. Where
    the launcher `has_threads`, another program does in its place, which takes 50 ms.
    Raises CommandError if it cannot be executed, OSError if there is no room for one more process.
    """
    launcher = os.getpid()
    cores = cores_of(placement, sorted(os.sched_getaffinity(0))) if bind_to == "core" else []

    def prepare() -> None:
        guard.die_with_parent(launcher)
        if cores:
            os.sched_setaffinity(0, cores)
        for signum in guard.HANDLED:
            if signum != signal.SIGHUP:  # nohup is for the ranks as well
                signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    stdout, stdout_of_rank = os.pipe()
    stderr, stderr_of_rank = os.pipe()
    outcome, outcome_of_rank = os.pipe() if call else (-1, -1)
    words = [*command, *([call, str(outcome_of_rank)] if call else [])]
    if has_threads:
        words = [sys.executable, "-m", "farandole.launch.begin", str(launcher), ",".join(map(str, cores)), *words]
    try:
        process = subprocess.Popen(
            words,
            env=environment,
            stdin=None if placement.rank == 0 and gets_stdin else subprocess.DEVNULL,
            stdout=stdout_of_rank,
            stderr=stderr_of_rank,
            start_new_session=True,
            pass_fds=[outcome_of_rank] if call else [],
            preexec_fn=None if has_threads else prepare,  # noqa: PLW1509  (we have one thread)
        )
    except OSError as error:
        if error.filename is None:  # fork, not exec
            raise
        raise CommandError(f"{command[0]} cannot be executed: {error.strerror}.", NOT_EXECUTABLE) from error
    finally:
        os.close(stdout_of_rank)
        os.close(stderr_of_rank)
        if call:
            os.close(outcome_of_rank)
    return Rank(placement, process, time.monotonic(), stdout, stderr, outcome)
