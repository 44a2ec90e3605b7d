"""The result of an operation that may not be complete yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from farandole._core import Handle as NativeHandle

R = TypeVar("R")
S = TypeVar("S")


class Handle(Generic[R]):
    """What the asynchronous functions return.

    Dropping one does not stop the operation, but an in-place result on a device or in strided memory arrives only with
    `wait`.
    """

    __slots__ = ("_finish", "_native", "_result")

    def __init__(self, native: NativeHandle, finish: Callable[[], R] | None, result: R | None = None) -> None:
        """The result is `result`, or what `finish` returns when it is called, once, after the operation is complete."""
        self._native = native
        self._finish = finish
        self._result = result

    def done(self) -> bool:
        """Whether `wait` would return (or raise) at once. Never blocks."""
        return self._native.done()

    def wait(self) -> R:
        """Block until complete and return the result; Ctrl-C interrupts. May be repeated.

        Raises the operation's error: MismatchError, PeerLostError or DeadlineError.
        """
        self._native.wait()
        if self._finish is not None:
            self._result = self._finish()
            self._finish = None
        return self._result  # type: ignore[return-value]  # one of the two was given

    def map(self, function: Callable[[R], S]) -> Handle[S]:
        """A handle of the same operation whose result is passed through `function` once."""
        return Handle(self._native, lambda: function(self.wait()))


def poll(handle: Handle[Any]) -> bool:
    """Whether the operation is complete, so that `synchronize` would not block."""
    if not isinstance(handle, Handle):
        raise _refusal(handle)
    return handle.done()


def synchronize(handle: Handle[R]) -> R:
    """Block until the operation is complete and return its result; raises the operation's error. May be repeated."""
    if not isinstance(handle, Handle):
        raise _refusal(handle)
    return handle.wait()


def _refusal(thing: object) -> TypeError:
    return TypeError(f"{thing!r} is no handle; the functions whose names end in _async or _async_ return one")
