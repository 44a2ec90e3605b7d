"""Warnings of the Python layer, through Python's logging: the logger "farandole".

A program that has set up logging gets them in its own handlers. In any other they go to stderr, in the form of the
core's lines.

The core's own lines (late ranks, connections turned away) go to stderr by one write(2), not here: they come from
threads without the GIL that may hold the core's locks, and they are of most use where a thread that holds the GIL does
not come back, which a handler in Python would wait for.
"""

from __future__ import annotations

import logging
import sys

from farandole._start import environment

logger = logging.getLogger("farandole")


class _ToStderr(logging.Handler):
    """Writes where no other handler of the program gets the record; to what sys.stderr is by then."""

    def emit(self, record: logging.LogRecord) -> None:
        if not _has_others():
            print(f"farandole {record.levelname.lower()}: {record.getMessage()}", file=sys.stderr, flush=True)


def _has_others() -> bool:
    if any(not isinstance(each, _ToStderr) for each in logger.handlers):
        return True
    return logger.propagate and bool(logging.getLogger().handlers)


def configure() -> None:
    """The level of FARANDOLE_LOG_LEVEL, unless the program has chosen one; called by `init`."""
    if logger.level == logging.NOTSET:
        logger.setLevel(environment.log_level())


if not any(isinstance(each, _ToStderr) for each in logger.handlers):
    logger.addHandler(_ToStderr())
