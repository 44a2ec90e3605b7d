"""The process of which rank processes are forks, see _starting. It imports what it is told, and starts nothing."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import importlib
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

_HIGH = 400  # above all descriptors that a request names
_STATUS = struct.Struct("!i")


def _serve(connection: socket.socket) -> list[str]:
    """Fork for each request, and tell how the forks end. Returns in a fork: the command that it is to become."""
    running: dict[int, int] = {}  # pid -> the pipe for its exit status
    waking, woken = socket.socketpair()
    for end in (waking, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([connection, waking], [], [])
        if waking in ready:
            waking.recv(4096)
            _reap(running)
        if connection not in ready:
            continue
        head, descriptors, _, _ = socket.recv_fds(connection, 8, 64)
        if not head:
            os._exit(0)
        (length,) = struct.unpack("!Q", head)
        command, env, folder, pass_fds = pickle.loads(connection.recv(length, socket.MSG_WAITALL))
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for ours in (connection, waking, woken):
                ours.close()
            for pipe in (descriptors[0], *running.values()):
                os.close(pipe)
            os.chdir(folder)
            _become(env, descriptors[1:], [1, *pass_fds])
            return list(command)
        running[pid] = descriptors[0]
        for each in descriptors[1:]:
            os.close(each)
        connection.sendall(_STATUS.pack(pid))


def _reap(running: dict[int, int]) -> None:
    """Tell the exit codes of those that have ended."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            pipe = running.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, _STATUS.pack(os.waitstatus_to_exitcode(status)))
            os.close(pipe)


def _become(env: Mapping[str, str], descriptors: list[int], places: Sequence[int]) -> None:
    """Take the environment, and the descriptors in the places that the launcher meant."""
    os.setsid()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _HIGH) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for each, place in zip(high, places, strict=True):
        os.dup2(each, place)
        os.close(each)
    os.dup2(1, 2)
    tempfile.tempdir = None  # by the variables that come now
    os.environ.clear()
    os.environ.update(env)
    sys.path[1:1] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]


def _run(arguments: list[str]) -> None:
    """Do what `python *arguments` does."""
    while arguments[0] in ("-X", "-W"):
        if arguments[1] == "faulthandler":
            faulthandler.enable()
        del arguments[:2]
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    inline = arguments[0] == "-c"
    name = "<string>" if inline else arguments[0]
    sys.argv[:] = ["-c", *arguments[2:]] if inline else arguments
    sys.path[0] = "" if inline else os.path.dirname(os.path.abspath(name))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = name
    source = arguments[1] if inline else Path(name).read_bytes()
    exec(compile(source, name, "exec"), main.__dict__)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # else each fork looks through all of it again, and copies the pages on which that counts
    with socket.socket(fileno=int(sys.argv[1])) as launcher:
        command_of_fork = _serve(launcher)
    _run(command_of_fork)
