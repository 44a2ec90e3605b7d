"""The forms of an operation: blocking or asynchronous, into new tensors or in place.

All forms of an operation take the same arguments, which are declared here once. A form is a bound method, so that a
call costs no more than any other method call, and a type checker knows its arguments and its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from farandole._api.calls import Parameters, check_sequence, reducing, rooted
from farandole._api.handles import Handle
from farandole._api.ops import Kind, ReduceOp
from farandole._api.process_sets import ProcessSet
from farandole._api.refusals import CallGuard

T = TypeVar("T")
R = TypeVar("R")
_ALLREDUCE, _BROADCAST = Kind.ALLREDUCE, Kind.BROADCAST  # to look a member up takes 70 ns

Act = Callable[[Kind, T, "T | None", Parameters], R]  # `Submitter.run` or `start_one`
Start = Callable[[Kind, Sequence[T], "Sequence[T | None]", Parameters], Handle[list[T]]]  # `Submitter.start`
Finish = Callable[[Handle[list[T]]], R]


class Form(Generic[T, R]):
    """Operations on one tensor."""

    __slots__ = ("_act", "_in_place")

    def __init__(self, act: Act[T, R], in_place: bool) -> None:
        self._act, self._in_place = act, in_place

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> R:
        """Combine the ranks' tensors element by element, see `Collectives.allreduce` for the arguments.

        `allreduce_` writes the result into `tensor` and returns it. `allreduce_async` and `allreduce_async_` return a
        Handle at once; until it is synchronized do not write the tensor, and in place do not read it either.

        Example:
            >>> values = np.array([1.0, 2.0])
            >>> handle = hvd.allreduce_async_(values, op=hvd.Sum)
            >>> hvd.synchronize(handle) is values
            True
            >>> values
            array([2., 4.])
        """
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        act = self._act  # 40 ns less than to call an attribute
        return act(_ALLREDUCE, tensor, tensor if self._in_place else None, parameters)

    def broadcast(self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None) -> R:
        """Send rank `root_rank`'s tensor to every rank; shape and dtype are the same on all ranks.

        `broadcast` returns a new tensor, `broadcast_` writes into `tensor` and returns it. `broadcast_async` and
        `broadcast_async_` return a Handle at once; until it is synchronized do not write the tensor, and in place do
        not read it either.

        Example:
            >>> hvd.broadcast(np.full(2, hvd.rank()), root_rank=1)
            array([1, 1])
        """
        parameters = rooted(root_rank, name, process_set)
        act = self._act
        return act(_BROADCAST, tensor, tensor if self._in_place else None, parameters)


class GroupedForm(Generic[T, R]):
    """Operations on several tensors as one."""

    def __init__(self, start: Start[T], finish: Finish[T, R], in_place: bool) -> None:
        self._start, self._finish, self._in_place = start, finish, in_place

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> R:
        """`allreduce` of several tensors as one operation, see `Collectives.grouped_allreduce`.

        `grouped_allreduce_` writes the results into the tensors and returns them. `grouped_allreduce_async` and
        `grouped_allreduce_async_` return a Handle at once.

        Example:
            >>> values = [np.ones(1), np.ones(2)]
            >>> results = hvd.grouped_allreduce_(values, op=hvd.Sum)
            >>> values
            [array([2.]), array([2., 2.])]
        """
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        with CallGuard(name, parameters[5]):
            check_sequence(tensors)
        targets = tensors if self._in_place else [None] * len(tensors)
        return self._finish(self._start(_ALLREDUCE, tensors, targets, parameters))


def waited(handle: Handle[list[T]]) -> list[T]:
    """Return the results; the `finish` of blocking forms."""
    return handle.wait()


def at_once(handle: Handle[list[T]]) -> Handle[list[T]]:
    """Return the handle; the `finish` of asynchronous forms."""
    return handle
