"""Where the user's program made a call, for messages: "train.py:12"."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

_MOST = 4096  # places remembered; programs that make code as they go must not grow by it
_frameworks: set[str] = set()
_known: dict[tuple[int, int], tuple[CodeType, str]] = {}


def caller(above: int) -> str:
    """The nearest frame outside Farandole's and the frameworks' packages; "" where there is none. About 0.1 us.

    Args:
        above: how many frames to skip unseen: 1 is whoever called the function that asks.
    """
    frame = sys._getframe(above + 1)
    code = frame.f_code
    known = _known.get((id(code), frame.f_lasti))  # a code object's own hash is slow
    return known[1] if known is not None and known[0] is code else _find(frame)


def _find(frame: FrameType) -> str:
    while _is_inside(frame.f_globals.get("__name__") or ""):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    code, position = frame.f_code, frame.f_lasti
    known = _known.get((id(code), position))
    if known is not None and known[0] is code:
        return known[1]
    if len(_known) >= _MOST:
        _known.clear()
    site = f"{_short(code.co_filename)}:{frame.f_lineno}"
    _known[id(code), position] = code, site
    return site


def pass_over(package: str) -> None:
    """From now on, frames of this framework are not the user's: its hooks call us."""
    _frameworks.add(package)


def _is_inside(module: str) -> bool:
    return module[:9] == "farandole" or module.partition(".")[0] in _frameworks


def _short(path: str) -> str:
    """Relative to the working directory where the file is below it, else its name alone."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # it was deleted
        here = os.sep
    return path[len(here) :] if path.startswith(here) and here != os.sep else os.path.basename(path)
