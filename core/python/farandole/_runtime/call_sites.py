"""Finds the line of the user's program that made a call, such as "train.py:12". The core asks about each place once.

A function that performs several operations, or one of another name, is named too: "save_checkpoint at train.py:14".
"""

from __future__ import annotations

import os
import re
import sys
from types import FrameType

_OPERATION = re.compile(
    r"(grouped_)?(allreduce|allgather|broadcast|alltoall|reducescatter|barrier|join|(add|remove)_process_set)"
    r"(_async)?_?"
)
_ours = {"farandole"}
_frameworks: set[str] = set()


def place(frame: FrameType, line: int | None = None) -> str | None:
    """File and line of a frame of the user's; None for one of Farandole's, of a framework, or of code it has made.

    `line` replaces the frame's own, which moves on while the frame handles an exception.
    """
    if _is_inside(frame.f_globals.get("__name__") or "") or _is_made(frame.f_code.co_filename):
        return None
    return f"{_short(frame.f_code.co_filename)}:{line or frame.f_lineno}"


def call_site(frame: FrameType, callee: FrameType | None) -> str | None:
    """The same, with the function that the frame has called where its name is not the operation's.

    "save_checkpoint at train.py:14"; None as `place` says.
    """
    where = place(frame)
    if where is None or callee is None or not is_ours(callee.f_globals.get("__name__") or ""):
        return where
    name = callee.f_code.co_name
    return where if name[0] in "_<" or _OPERATION.fullmatch(name) else f"{name} at {where}"


def stack_level() -> int:
    """The `stacklevel` with which a warning of the function that asks points at the user's line."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_inside(frame.f_globals.get("__name__") or ""):
        frame, level = frame.f_back, level + 1
    return level


def public_call() -> str:
    """The name of the function of Farandole's that the user's program has called: the outermost public one."""
    frame: FrameType | None = sys._getframe(1)
    name = "the call"
    while frame is not None and _is_inside(module := frame.f_globals.get("__name__") or ""):
        if is_ours(module) and frame.f_code.co_name[0] not in "_<":
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


def register_plugin(module: str, *frameworks: str) -> None:
    """Count the module's top-level package as Farandole's. No prefix is compared: a user's may be farandole_x.

    frameworks: packages that call the plugin, say from their hooks, so that their frames are not the user's either.
    """
    _frameworks.update(frameworks)
    if module != "__main__":  # an adapter in the user's own script makes no other code of it ours
        _ours.add(module.partition(".")[0])


def is_ours(module: str) -> bool:
    """True where the module's top-level package is farandole or was registered by a plugin."""
    return module.partition(".")[0] in _ours


def _is_inside(module: str) -> bool:
    package = module.partition(".")[0]
    return package in _ours or package in _frameworks


def _is_made(path: str) -> bool:
    """Return whether a framework has generated the file from the user's function, so that its lines mean nothing."""
    return os.path.basename(path).startswith("__autograph_generated_file")


def _short(path: str) -> str:
    """Relative to the working directory where the file is below it, else its name alone."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # it was deleted
        here = os.sep
    return path[len(here) :] if path.startswith(here) and here != os.sep else os.path.basename(path)
