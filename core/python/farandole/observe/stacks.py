"""Reads the stacks of a rank with py-spy, if it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

_LIMIT_S = 10.0
_MOST_FRAMES = 12  # of a thread, in the text

HINT = f"stacks need py-spy: {sys.executable} -m pip install py-spy"


@dataclass(frozen=True)
class Thread:
    """One thread of a rank, with frames such as "train.py:12 load", innermost first."""

    name: str
    active: bool
    holds_gil: bool
    frames: tuple[str, ...]


def program() -> str | None:
    """Return py-spy's path, beside this Python or in PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def of(pid: int, py_spy: str, native: bool) -> list[Thread] | str:
    """Return the threads of a process, or a sentence that says why they cannot be read.

    Python stacks are read without stopping the process. Native stacks stop it for some milliseconds.
    """
    command = [py_spy, "dump", "--json", "--pid", str(pid), "--native" if native else "--nonblocking"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LIMIT_S, check=False, text=True, errors="replace")
        if done.returncode == 0:
            return threads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"py-spy did not answer within {_LIMIT_S:.0f} s for pid {pid}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"py-spy's answer for pid {pid} cannot be read: {error}"
    why = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
    return f"py-spy cannot look at pid {pid}: {why}"


def threads(answer: str) -> list[Thread]:
    """Parse the output of `py-spy dump --json`. Raises ValueError, KeyError, TypeError for anything else."""
    return [
        Thread(
            str(each.get("thread_name") or f"thread {each['thread_id']}"),
            bool(each["active"]),
            bool(each["owns_gil"]),
            tuple(
                f"{frame.get('short_filename') or frame['filename']}:{frame['line']} {frame['name']}"
                for frame in each["frames"]
            ),
        )
        for each in json.loads(answer)
    ]


def lines(found: list[Thread]) -> list[str]:
    """Return the threads that run Python code, as text."""
    text = []
    for thread in found:
        does = "holds the GIL" if thread.holds_gil else "runs" if thread.active else "waits"
        text.append(f"thread {thread.name} ({does}):")
        text += [f"  {frame}" for frame in thread.frames[:_MOST_FRAMES]]
        if len(thread.frames) > _MOST_FRAMES:
            text.append(f"  and {len(thread.frames) - _MOST_FRAMES} outer calls")
    return text
