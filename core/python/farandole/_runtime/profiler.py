"""Spans of a framework's profiler around our calls; only while a profiler is on, which the Adapter says.

    farandole.allreduce         a call that blocks
    farandole.allreduce.begin   one that does not
    farandole.allreduce.wait    the wait for its handle

and after that the operation's name, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from farandole._api.calls import Parameters
from farandole._api.handles import Handle
from farandole._api.ops import Kind

R = TypeVar("R")
S = TypeVar("S")
Span = Callable[[str], AbstractContextManager[object]]


class SpannedHandle(Handle[R]):
    """A handle whose waits are spans."""

    __slots__ = ("_handle", "_span", "_title")

    def __init__(self, handle: Handle[R], span: Span, title: str) -> None:
        self._handle, self._span, self._title = handle, span, title

    def done(self) -> bool:
        return self._handle.done()

    def wait(self, limit_s: float = 0, /) -> R:
        with self._span(self._title):
            return self._handle.wait(limit_s)

    def map(self, function: Callable[[R], S]) -> Handle[S]:
        return SpannedHandle(self._handle.map(function), self._span, self._title)


def spanned_call(span: Span, kind: Kind, parameters: Parameters, call: Callable[[], R]) -> R:
    """`call` in a span."""
    with span(_title(kind, "", parameters)):
        return call()


def spanned_start(span: Span, kind: Kind, parameters: Parameters, start: Callable[[], Handle[R]]) -> Handle[R]:
    """`start` in a span; waiting for its handle will be another."""
    with span(_title(kind, ".begin", parameters)):
        handle = start()
    return SpannedHandle(handle, span, _title(kind, ".wait", parameters))


def _title(kind: Kind, part: str, parameters: Parameters) -> str:
    return f"farandole.{Kind(kind).name.lower()}{part} {parameters[0] or ''}".rstrip()
