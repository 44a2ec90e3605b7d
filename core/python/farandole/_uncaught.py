"""What is printed of an exception that nobody caught: down to the user's line, and what it was in one sentence.

Traceback (most recent call last):
  File "train.py", line 7, in train            the user's frames; ours and the framework's below them tell nothing
farandole.MismatchError: allreduce 'x': the ranks disagree ...
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

from farandole._errors import MismatchError, RecoverableError
from farandole._sites import place

_ELSEWHERE = re.compile(r"^.*? failed on rank \d+: ")  # of an operation that failed of what another rank has found
_translations: list[Callable[[BaseException], BaseException | None]] = []


def translate_errors(translation: Callable[[BaseException], BaseException | None]) -> None:
    """From now on, ask this for what a framework raises in our place, with words of its own: our error, or None."""
    _translations.append(translation)


class Uncaught:
    """An exception that ends this rank's program."""

    def __init__(self, error: BaseException, trace: TracebackType | None) -> None:
        ours = next(filter(None, (translation(error) for translation in _translations)), None)
        self._error = ours or error
        self._is_ours = ours is not None or isinstance(error, (MismatchError, RecoverableError))
        self._trace = down_to_the_user(trace) if self._is_ours else trace

    @property
    def text(self) -> str:
        """What is printed: one string, so that lines of other ranks do not come between."""
        return "".join(traceback.format_exception(type(self._error), self._error, self._trace))

    @property
    def mistake(self) -> str:
        """The same on all ranks that fail of one mistake; of ours there is one in a job, in one sentence or several."""
        return type(self._error).__name__ if self._is_ours else self.text

    @property
    def reason(self) -> str:
        """Its sentence, as another rank would say it."""
        return _ELSEWHERE.sub("", str(self._error))

    @property
    def where(self) -> str:
        """The innermost line of the user's own, " at train.py:7"."""
        frames = [frame for frame, _ in traceback.walk_tb(self._trace)]
        return next((f" at {place(frame)}" for frame in reversed(frames) if _is_users(frame)), "")


def down_to_the_user(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames below the user's innermost one; whole where none is the user's."""
    links = []
    while trace is not None:
        links.append(trace)
        trace = trace.tb_next
    users = [number for number, link in enumerate(links) if _is_users(link.tb_frame)]
    kept = links[: users[-1] + 1] if users else links
    result = None
    for link in reversed(kept):
        result = TracebackType(result, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return result


def _is_users(frame: FrameType) -> bool:
    """Not so of the standard library, by which we and frameworks call our own functions."""
    module = str(frame.f_globals.get("__name__") or "").partition(".")[0]
    return module not in sys.stdlib_module_names and place(frame) is not None
