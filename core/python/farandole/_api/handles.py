"""The result of an operation that may not be complete yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


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
        """Returns whether `wait` would return (or raise) at once. Never blocks."""

    @abstractmethod
    def wait(self) -> R_co:
        """Block until complete and return the result; Ctrl-C interrupts. May be repeated.

        Raises the operation's error: MismatchError, PeerLostError or DeadlineError.
        """

    @abstractmethod
    def map(self, function: Callable[[R_co], S]) -> Handle[S]:
        """A handle of the same operation whose result is passed through `function` once, by the first `wait`."""
