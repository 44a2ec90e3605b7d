"""The result of an operation that may not be complete yet."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")


class Handle(ABC, Generic[R_co]):
    """The result of the asynchronous functions. The core makes handles (`native.py` says so to `isinstance`).

    Dropping one does not stop the operation, but an in-place result on a device or in strided memory arrives only with
    `wait`.

    Example:
        >>> handle = hvd.allreduce_async(np.ones(2), op=hvd.Sum)
        >>> handle.wait()
        array([2., 2.])
    """

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Return whether `wait` would return (or raise) at once. Never blocks."""

    @abstractmethod
    def wait(self, limit_s: float = 0, /) -> R_co:
        """Block until complete and return the result; Ctrl-C interrupts. May be repeated.

        Raises the operation's error: MismatchError, PeerLostError or DeadlineError; the last also after `limit_s`
        seconds, unless that is 0. The operation then stays in flight.
        """

    @abstractmethod
    def map(self, function: Callable[[R_co], S]) -> Handle[S]:
        """Return a handle of the same operation. The first `wait` passes the result through `function`, once."""


class MappedHandle(Handle[S], Generic[R, S]):
    """A handle from `map`. It keeps the origin, and so the tensors, until the function has returned."""

    __slots__ = ("_caller", "_function", "_lock", "_origin", "_result")

    _result: S

    def __init__(self, origin: Handle[R], function: Callable[[R], S]) -> None:
        self._origin: Handle[R] | None = origin
        self._function: Callable[[R], S] | None = function
        self._lock = threading.Lock()  # held by the thread that calls the function
        self._caller: int | None = None

    def done(self) -> bool:
        origin = self._origin
        return origin is None or origin.done()

    def wait(self, limit_s: float = 0, /) -> S:
        origin = self._origin
        if origin is not None:
            origin.wait(limit_s)  # without the lock: several threads may wait
            if self._caller == threading.get_ident():
                raise RuntimeError("the function given to map() waits for the handle that map() has returned")
            with self._lock:
                self._call()
        return self._result

    def _call(self) -> None:
        if self._origin is None or self._function is None:
            return  # another thread has called it meanwhile
        self._caller = threading.get_ident()
        try:
            self._result = self._function(self._origin.wait())
        finally:
            self._caller = None
        self._origin = self._function = None

    def map(self, function: Callable[[S], T]) -> Handle[T]:
        return MappedHandle(self, function)
