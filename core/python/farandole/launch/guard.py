"""Leaves no process of a job behind: the process tree, and two launcher processes that clean up after each other.

    farandole run           the outer process: what the user, the shell and `kill` see
      |                     passes signals on, waits; cleans up if the inner one dies
      +-- inner process     own session: starts and supervises the ranks; cleans up when the outer one is gone
            +-- rank 0      own session, dies with the inner process (PR_SET_PDEATHSIG)
            +-- rank 1 ...

Both are child subreapers, so whatever a rank starts stays their descendant, even if it leaves its session and its
parent dies: "no children left" means that nothing of the job is left. Only killing both at the same instant with
SIGKILL can leave grandchildren of a rank behind; the ranks themselves die even then.
The inner process learns of the outer's death by end-of-file on a pipe that only the outer one keeps open.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from farandole.launch.events import JobEnded

if TYPE_CHECKING:
    import subprocess

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_SECONDS = 3.0  # a process that survives SIGKILL for so long is stuck in the kernel; waiting longer does not help
INTERNAL_ERROR = 70

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Signals that the user may send to `farandole run`; the inner process decides what each of them means.
HANDLED = (
    *ENDING,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTSTP,
    signal.SIGCONT,
)

_libc = ctypes.CDLL(None, use_errno=True)  # looked up here: nothing is loaded between fork and exec


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def become_subreaper() -> None:
    """Make this process the parent of its orphaned descendants, in place of init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent_pid: int) -> None:
    """Make this new child get SIGKILL when its parent dies, even if the parent died before this call."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(128 + signal.SIGKILL)


def become_child(parent_pid: int, cores: Collection[int] = ()) -> None:
    """In a new child, before exec: die with the parent, and reset all signals but nohup's SIGHUP."""
    die_with_parent(parent_pid)
    if cores:
        os.sched_setaffinity(0, cores)
    for signum in HANDLED:
        if signum != signal.SIGHUP:
            signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def start_child(
    args: Sequence[str], has_threads: bool = False, cores: Collection[int] = (), **options: Any
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, which ends with this process. Raises OSError.

    REQUIRES one thread and signals of HANDLED blocked, unless the launcher `has_threads`: then nothing may run
    between fork and exec, so another Python (`main`) becomes the program, which takes 50 ms.

    Args:
        args: the command; the first word is a path where we have threads.
        has_threads: see above.
        cores: the cores to bind the program to; empty: no binding.
        options: of subprocess.Popen.
    """
    import subprocess  # late, as `main` does without

    parent = os.getpid()
    prepare = None if has_threads else partial(become_child, parent, cores)
    if has_threads:
        args = [sys.executable, "-m", "farandole.launch.guard", str(parent), ",".join(map(str, cores)), *args]
    return subprocess.Popen(args, start_new_session=True, preexec_fn=prepare, **options)  # noqa: PLW1509


def _nobody(_pid: int) -> bool:
    return False


def signal_descendants(signum: int, spare: Callable[[int], bool] = _nobody) -> list[int]:
    """Signal all descendants, except those of the children in `spare`. Returns the process ids.

    REQUIRES: no other thread reaps at the same time.
    """
    import psutil  # late: most jobs end without anything left to look for

    reached: list[int] = []
    for child in psutil.Process().children():
        if spare(child.pid):
            continue
        try:
            family = [child, *child.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for process in family:
            try:
                process.send_signal(signum)  # psutil checks the start time: a reused id is not hit
                reached.append(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
    return reached


def sweep(spare: Callable[[int], bool] = _nobody) -> None:
    """Kill descendants with SIGKILL until only the spared ones are left."""
    deadline = time.monotonic() + _SWEEP_SECONDS
    while _has_children() and signal_descendants(signal.SIGKILL, spare) and time.monotonic() < deadline:
        time.sleep(0.005)


def _has_children() -> bool:
    """Return whether there are children; reaps dead ones."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children_before_us() -> set[int]:
    """The children that we had before we were the launcher (`server & exec farandole ...`, or PID 1 of a container)."""
    if not _has_children():
        return set()
    import psutil

    return {child.pid for child in psutil.Process().children()}


def tell_user(ended: JobEnded) -> None:
    """Print how a job has ended; used if no supervisor does so."""
    for sentence in ended.sentences:
        print(f"farandole: {sentence}", file=sys.stderr)


def run_guarded(*works: Callable[[int], int], end: Callable[[JobEnded], None] = tell_user) -> int:
    """Run each `work(lifeline)` in its own inner process, one after the other, until one fails.

    Returns the exit code of the last one; 128 + signal if the user ended the job between two of them.
    The descriptor `lifeline` is at end-of-file when the outer process is gone. `end` reports the end of a job if the
    inner process cannot.
    REQUIRES one thread. A work starts with the signals of HANDLED blocked.
    """
    _fill_standard_descriptors()
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # inherited; children would leave us no exit codes
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    strangers = _children_before_us()
    become_subreaper()
    interruptions: list[int] = []
    code = 0
    for work in works:
        if interruptions:  # the inner process had ended before it could hear of it
            name = signal.Signals(interruptions[0]).name
            end(JobEnded(128 + interruptions[0], (f"ended by {name} between two lines.",)))
            return 128 + interruptions[0]
        code = _run_one(work, strangers, interruptions, end)
        if code != 0:
            break
        if work is not works[-1]:
            signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)  # the next inner process hears what comes from here on
    return code


def _run_one(
    work: Callable[[int], int], strangers: set[int], interruptions: list[int], end: Callable[[JobEnded], None]
) -> int:
    lifeline, held_by_outer = os.pipe()
    outer_pid = os.getpid()
    inner_pid = os.fork()
    if inner_pid == 0:
        os.close(held_by_outer)
        _be_inner(work, lifeline)
    os.close(lifeline)
    _pass_signals_on(inner_pid, outer_pid, interruptions)
    status = _wait_for(inner_pid)
    os.close(held_by_outer)
    if status < 0:  # else it has left nothing
        sweep(strangers.__contains__)
        name = signal.Signals(-status).name
        end(JobEnded(128 - status, (f"the launcher's inner process was killed by {name}; its ranks were ended.",)))
        return 128 - status
    return status


def _fill_standard_descriptors() -> None:
    """Open standard descriptors that are closed (`<&-`); otherwise our pipes would become a rank's stdin or stdout."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _be_inner(work: Callable[[int], int], lifeline: int) -> None:
    code = INTERNAL_ERROR
    try:
        os.setsid()  # signals of the terminal reach the outer process only, which passes each on once
        become_subreaper()
        code = work(lifeline)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sweep()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def _pass_signals_on(inner_pid: int, own_pid: int, interruptions: list[int]) -> None:
    """Forward signals to the inner process; append those that end a job to `interruptions`."""

    def forward(signum: int, _frame: FrameType | None) -> None:
        if signum in ENDING:
            interruptions.append(signum)
        try:
            os.kill(inner_pid, signum)
        except ProcessLookupError:
            return
        if signum == signal.SIGTSTP:
            os.kill(own_pid, signal.SIGSTOP)  # so that the shell gets its prompt; the inner process stops the ranks

    for signum in HANDLED:
        if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
            continue  # nohup
        signal.signal(signum, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def _wait_for(inner_pid: int) -> int:
    """Return the inner process's exit code, or minus the signal that killed it. Reaps other children meanwhile."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == inner_pid:
            return os.waitstatus_to_exitcode(status)


def main() -> None:
    """`python -m farandole.launch.guard PARENT 0,1 COMMAND...`: become COMMAND, which ends with PARENT."""
    parent, cores, *command = sys.argv[1:]
    become_child(int(parent), [int(each) for each in cores.split(",") if each])
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
