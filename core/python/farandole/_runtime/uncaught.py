"""The text of an exception that nobody caught: the traceback down to the user's line, then one sentence.

Traceback (most recent call last):
  File "train.py", line 7, in train            the user's frames; ours and the framework's below them tell nothing
farandole.MismatchError: allreduce 'x': the ranks disagree ...
"""

from __future__ import annotations

import dis
import re
import sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType

from farandole._api.errors import MembershipError, MismatchError, RecoverableError
from farandole._runtime.call_sites import is_ours, place

_ELSEWHERE = re.compile(r"^.*? failed on rank \d+: ")  # of an operation that failed of what another rank has found
_translations: list[Callable[[BaseException], BaseException | None]] = []


def translate_errors(translation: Callable[[BaseException], BaseException | None]) -> None:
    """Register a function that returns our error for what a framework raised in place of it, else None."""
    _translations.append(translation)


class Uncaught:
    """An exception that ends this rank's program."""

    def __init__(self, error: BaseException, trace: TracebackType | None) -> None:
        self.error = _translated(error)
        self._is_of_all_ranks = isinstance(self.error, (MembershipError, MismatchError, RecoverableError))
        is_cut = self._is_of_all_ranks or _is_refusal(self.error, trace, is_translated=self.error is not error)
        self._trace = down_to_the_user(trace) if is_cut else trace

    @property
    def text(self) -> str:
        """The text to print, in one string, so that it is not mixed with lines of other ranks."""
        return "".join(traceback.format_exception(type(self.error), self.error, self._trace))

    @property
    def mistake(self) -> str:
        """The key by which ranks that fail of one mistake find each other: equal on all of them.

        Of an error that all ranks raise it is the class alone, since ranks may word one mistake differently.
        """
        return type(self.error).__name__ if self._is_of_all_ranks else self.text

    @property
    def reason(self) -> str:
        """Its sentence, as another rank would say it."""
        return _ELSEWHERE.sub("", sentence_of(self.error))

    @property
    def where(self) -> str:
        """The innermost line of the user's own, " at train.py:7"."""
        frames = [*traceback.walk_tb(self._trace)]
        return next((f" at {place(frame, line)}" for frame, line in reversed(frames) if _is_users(frame)), "")


def sentence_of(error: BaseException) -> str:
    """The error's own words; its class where `__str__` raises, which must not keep a rank from saying that it ends."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}, whose __str__ raises"


def _translated(error: BaseException) -> BaseException:
    """Our error for what a framework raised in its place, with the notes and causes of that; else the error itself."""
    ours = next(filter(None, (translation(error) for translation in _translations)), None)
    if ours is None:
        return error
    for name in ("__notes__", "__cause__", "__context__", "__suppress_context__"):  # the last one is set by a cause
        if hasattr(error, name):
            setattr(ours, name, getattr(error, name))
    return ours


def _is_refusal(error: BaseException, trace: TracebackType | None, is_translated: bool) -> bool:
    """True where Farandole refused a call of this rank alone, whatever the other ranks call."""
    if type(error).__module__ == "farandole":  # and those of plugins
        return isinstance(error, ValueError | TypeError)
    if type(error) not in (ValueError, TypeError):
        return False
    return is_translated or _is_raised_by_us(trace, by_statement=type(error) is TypeError)


def _is_raised_by_us(trace: TracebackType | None, by_statement: bool) -> bool:
    """True where the innermost frame is ours; by_statement: and says `raise`, so that our own bugs are shown whole."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_ours(str(trace.tb_frame.f_globals.get("__name__") or "")):
        return False
    operation = dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return operation == "RAISE_VARARGS" or not by_statement


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
    """True for a frame of the user's own code. The standard library's do not count: frameworks call through it."""
    module = str(frame.f_globals.get("__name__") or "").partition(".")[0]
    return module not in sys.stdlib_module_names and place(frame) is not None
