"""Warnings of the Python layer, in the logger "farandole".

A program that has set up logging gets them in its own handlers. Otherwise they go to stderr, in the format of the core.

The core writes its own lines (late ranks, refused connections) directly to stderr. They come from threads without the
GIL that may hold locks of the core, and they matter most when another thread never gives up the GIL, for which a
handler in Python would wait.
"""

from __future__ import annotations

import logging
import sys

from farandole._start import environment

logger = logging.getLogger("farandole")


class _ToStderr(logging.Handler):
    """Writes to the current sys.stderr, unless another handler of the program gets the record."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _has_others():
            print(f"farandole {record.levelname.lower()}: {record.getMessage()}", file=sys.stderr, flush=True)


def _has_others() -> bool:
    if any(not isinstance(each, _ToStderr) for each in logger.handlers):
        return True
    return logger.propagate and bool(logging.getLogger().handlers)


def configure() -> None:
    """Set the level of FARANDOLE_LOG_LEVEL, unless the program has chosen one. `init` calls this."""
    if logger.level == logging.NOTSET:
        logger.setLevel(environment.log_level())


if not any(isinstance(each, _ToStderr) for each in logger.handlers):
    logger.addHandler(_ToStderr())
