"""Child processes that end with their parent, also where it is killed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_PROGRAM = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9, 0, 0, 0); "  # PR_SET_PDEATHSIG, SIGKILL
    "os.getppid() == int(sys.argv[1]) or os._exit(137); os.execv(sys.argv[2], sys.argv[2:])"
)


def end_with(parent: int, words: Sequence[str]) -> list[str]:
    """The words for a process that is killed when the thread of `parent` that has started it ends."""
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(parent), *words]
