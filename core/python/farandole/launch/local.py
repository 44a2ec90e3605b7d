"""The parts of a start on this machine: the command, the job's key, ports that are reserved."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Sequence

from farandole.launch.hosts import bracketed
from farandole.launch.spec import SpecError

KEY_BYTES = 32
NOT_FOUND = 127
NOT_EXECUTABLE = 126
_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*|(?:ba|da|k|z)?sh")
_HAS_PROGRAM = re.compile(r"-[A-Za-z]*[cmVh?]|--(?:version|help)")  # or needs none
_WITH_VALUE = {"-W", "-X", "-o"}


def unusable(why: str, exit_code: int = NOT_EXECUTABLE) -> SpecError:
    """Return the error for a command that cannot be run."""
    return SpecError(why, "command", exit_code=exit_code)


def resolve_command(args: Sequence[str], module: bool, path: str | None) -> list[str]:
    """The user's command -> the command to execute; the first word becomes a path. REQUIRES at least one word."""
    name, rest = args[0], list(args[1:])
    if module:
        return [sys.executable, "-m", name, *rest]
    if name.endswith(".py") and os.path.isfile(name):
        return [os.path.abspath(name), *rest] if _is_executable_script(name) else [sys.executable, name, *rest]
    found = shutil.which(name, path=path)
    if found is not None:
        return [found, *rest]
    if os.path.isdir(name):
        raise unusable(f"{name} is a directory, not a command.")
    if os.sep in name and os.path.exists(name):
        raise unusable(f"{name} may not be executed: chmod +x {name}, or name its interpreter.")
    where = "no such file" if os.sep in name or name.endswith(".py") else "no such command in PATH"
    raise unusable(f"{name}: {where}.", NOT_FOUND)


def check_program(args: Sequence[str], ranks: int, by_agents: bool = False) -> None:
    """Raise SpecError if a rank would read an empty program from stdin, which only rank 0 on this host gets."""
    if (ranks > 1 or by_agents) and _reads_program_from_stdin(args):
        who = "ranks on other hosts do not get" if by_agents else "only rank 0 gets: the other ranks would run nothing"
        raise SpecError(
            f"{shlex.join(args)} reads the program from stdin, which {who}. Write the program to a file, and run that."
        )


def _reads_program_from_stdin(args: Sequence[str]) -> bool:
    """Return whether this is `python -`, `python`, `sh -s`, but not `python x.py`, `sh -c x`, `python -V`."""
    if not _INTERPRETER.fullmatch(os.path.basename(args[0])):
        return False
    arguments = iter(args[1:])
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
    """Return a descriptor of sealed memory with the job's secret, by default a new one. It ends with this process."""
    descriptor = os.memfd_create("farandole-key", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, key or os.urandom(KEY_BYTES))
    os.fchmod(descriptor, 0o400)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def make_call() -> int:
    """Return a descriptor of memory for the function that ranks call. It ends with the processes that hold it."""
    descriptor = os.memfd_create("farandole-call", os.MFD_CLOEXEC)
    os.fchmod(descriptor, 0o400)
    return descriptor


def path_for_ranks(descriptor: int) -> str:
    """The path under which ranks open it: the kernel lets only the same user read /proc/<pid>/fd."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def make_store() -> str:
    """Return a random abstract Unix socket name for rank 0 to bind."""
    return f"unix:farandole-{os.urandom(16).hex()}"


def reserve_port(address: str = "127.0.0.1") -> socket.socket:
    """Reserve a port of this machine at which rank 0 can listen; torch.distributed asks for its number.

    As long as the socket is open, the kernel does not assign the port to a process that asks for any port.
    """
    reserved = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((address, 0))
    return reserved


def reserve_endpoints(address: str) -> tuple[list[socket.socket], str, int]:
    """Reserve two ports for rank 0 to listen at: the rendezvous endpoint, and the port for torch.distributed."""
    held = [reserve_port(address) for _ in range(2)]
    store, master = (each.getsockname()[1] for each in held)
    return held, f"tcp:{bracketed(address)}:{store}", master
