"""Stacks of all threads as text in faulthandler's format: innermost call first, main thread last.

If a thread keeps the GIL in C code, `of_this_process` cannot run. Then the core raises the signal of `answer_signal`
in one of its own threads, and faulthandler's handler writes the stacks.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from collections.abc import Callable, Collection

_MOST_BYTES = 16 << 10
_HEAD = re.compile(r".*hread 0x([0-9a-f]+)")
_CURRENT = re.compile(r"^Current thread 0x.*?(\n\n|\Z)", re.DOTALL | re.MULTILINE)
_OURS = ("/site-packages/farandole", "/dist-packages/farandole", "/python/farandole/", "/src/farandole_")
_INSTALLED = ("/site-packages/", "/dist-packages/")
# The innermost frames of threads that wait for work or, such as tqdm's monitor, never call collectives.
_IDLE = (
    ('/concurrent/futures/thread.py"', " in _worker"),
    ('/multiprocessing/queues.py"', " in _feed"),
    ('/tqdm/_monitor.py"', " in run"),
    ('/farandole/_runtime/trace_writer.py"', " in _run"),
)


def of_this_process() -> str:
    """Return the stacks of all threads but the calling one; "" if the process cannot open another file."""
    try:
        file = os.memfd_create("farandole stacks")
    except OSError:
        return ""
    try:
        faulthandler.dump_traceback(file, all_threads=True)
        text = os.pread(file, os.lseek(file, 0, os.SEEK_END), 0).decode(errors="replace")
    finally:
        os.close(file)
    return _CURRENT.sub("", text)


def cut(stacks: str) -> str:
    """Shorten stacks for a warning. Keeps their end, which has the main thread."""
    return stacks[-_MOST_BYTES:]


def answer_signal(tell: Callable[[int, int], None]) -> None:
    """Register faulthandler for an unused signal, and pass its number and the file descriptor to `tell`."""
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) == signal.SIG_DFL:
            file = os.memfd_create("farandole stacks")
            faulthandler.register(number, file, all_threads=True)
            tell(number, file)
            return


def no_others_may_call(stacks: str, threads: Collection[int]) -> bool:
    """Whether each thread is one of `threads` or known to be idle. False if the stacks are cut off."""
    lines = stacks.splitlines()
    heads = [number for number, line in enumerate(lines) if _HEAD.match(line)]
    if not heads or heads[0] != 0 or any(line.strip() == "..." for line in lines):
        return False
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        match = _HEAD.match(lines[head])
        assert match is not None
        if int(match[1], 16) not in threads and not _is_idle(lines[head + 1 : end]):
            return False
    return True


def _is_idle(frames: list[str]) -> bool:
    while frames and '/threading.py"' in frames[0] and frames[0].endswith(" in wait"):
        frames = frames[1:]
    return bool(frames) and any(file in frames[0] and frames[0].endswith(function) for file, function in _IDLE)


def users_frame(stacks: str) -> str:
    """Return the innermost frame of the user's program: `File "train.py", line 12 in main`.

    Falls back to frames of installed packages, since the program may be installed, too, and then to our own. Of
    several threads the last one counts, which is the main thread.
    """
    for skipped in ((*_OURS, *_INSTALLED), _OURS, ()):
        if frame := _last_frame(stacks, skipped):
            return frame
    return "an unknown place"


def _last_frame(stacks: str, skipped: tuple[str, ...]) -> str:
    """Return the innermost frame that is not skipped, of the last thread that has one."""
    found, is_sought = "", True
    for line in stacks.splitlines():
        begin = line.find('File "')
        if begin < 0:
            is_sought = True
        elif is_sought and not any(each in line for each in skipped):
            found, is_sought = line[begin:], False
    return found
