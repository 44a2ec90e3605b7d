"""The operations of every plugin, with the names, arguments and defaults that Horovod's users know.

Written once over an Adapter; `farandole.numpy` and most of a plugin's names are these methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from farandole import _world
from farandole._adapter import Adapter
from farandole._compression import Compression, Compressor
from farandole._handles import Handle
from farandole._ops import Kind, ReduceOp, check_process_set, check_root, reduction
from farandole._submit import Parameters, Submitter

T = TypeVar("T")


class Collectives(Generic[T]):
    """All operations on the tensors of one framework.

    Common to all of them: every rank must make the call, with the same `name` where one is given; unnamed calls are
    matched by their order. Ranks that disagree about dtype or shape all raise MismatchError. A name may be in flight
    once per rank. Forms ending in `_async` return a Handle for `poll` and `synchronize`, forms ending in `_` write
    into the tensor they are given; the others return a new tensor. `process_set` must be None for now.

    Raises, in all of them: NotInitializedError; ValueError for misuse that this rank sees alone; MismatchError;
    PeerLostError; DeadlineError.
    """

    def __init__(self, adapter: Adapter[T]) -> None:
        self.adapter = adapter
        self.Compression: Compression[T] = Compression(adapter)
        self._submitter: Submitter[T] = Submitter(adapter)

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: Compressor[T] | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> T:
        """Combine the ranks' tensors element by element into a new tensor of the same shape and dtype.

        Args:
            tensor: of any shape and supported dtype; alike on all ranks.
            average: deprecated; True means op=Average, False op=Sum.
            name: see the class.
            compression: what to send instead, such as `Compression.fp16`.
            op: Average (default), Sum, Min, Max or Product. An average of integers is truncated.
            prescale_factor: multiplies before the reduction.
            postscale_factor: multiplies after it.
            process_set: see the class.
        """
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        if compression is None:
            return self._submitter.run(Kind.ALLREDUCE, tensor, None, parameters)
        sent, context = compression.compress(tensor)
        return compression.decompress(self._submitter.run(Kind.ALLREDUCE, sent, None, parameters), context)

    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> Handle[T]:
        """`allreduce` that returns at once; the tensor must not be written until the handle is synchronized."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.start_one(Kind.ALLREDUCE, tensor, None, parameters)

    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> T:
        """`allreduce` in place; returns `tensor`."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.run(Kind.ALLREDUCE, tensor, tensor, parameters)

    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> Handle[T]:
        """`allreduce` in place that returns at once; do not touch the tensor until the handle is synchronized."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.start_one(Kind.ALLREDUCE, tensor, tensor, parameters)

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: Compressor[T] | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> list[T]:
        """`allreduce` of several tensors as one operation: it starts when every rank has called it with all of them."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        _check_sequence(tensors)
        compression = compression or self.Compression.none
        sent, contexts = zip(*map(compression.compress, tensors), strict=True)
        results = self._reduce_all(sent, [None] * len(sent), parameters).wait()
        return list(map(compression.decompress, results, contexts))

    def grouped_allreduce_async(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> Handle[list[T]]:
        """`grouped_allreduce` that returns at once."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._reduce_all(tensors, [None] * len(tensors), parameters)

    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> list[T]:
        """`grouped_allreduce` in place; returns the tensors."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._reduce_all(tensors, tensors, parameters).wait()

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: object = None,
    ) -> Handle[list[T]]:
        """`grouped_allreduce` in place that returns at once."""
        parameters = _reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._reduce_all(tensors, tensors, parameters)

    def allgather(self, tensor: T, name: str | None = None, process_set: object = None) -> T:
        """The ranks' tensors one after the other along the first dimension, rank 0's first, as a new tensor.

        The first dimension may differ between ranks and may be 0; the others and the dtype are alike.
        """
        return self.allgather_async(tensor, name, process_set).wait()

    def allgather_async(self, tensor: T, name: str | None = None, process_set: object = None) -> Handle[T]:
        """`allgather` that returns at once; the tensor must not be written until the handle is synchronized."""
        check_process_set(process_set)
        return self._submitter.gather([tensor], Parameters(name or "")).map(_only)

    def grouped_allgather(self, tensors: Sequence[T], name: str | None = None, process_set: object = None) -> list[T]:
        """`allgather` of several tensors as one operation."""
        return self.grouped_allgather_async(tensors, name, process_set).wait()

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: object = None
    ) -> Handle[list[T]]:
        """`grouped_allgather` that returns at once."""
        check_process_set(process_set)
        _check_sequence(tensors)
        return self._submitter.gather(tensors, Parameters(name or ""))

    def broadcast(self, tensor: T, root_rank: int, name: str | None = None, process_set: object = None) -> T:
        """Rank `root_rank`'s tensor, as a new tensor, on every rank; shape and dtype are alike on all ranks."""
        return self._submitter.run(Kind.BROADCAST, tensor, None, _rooted(root_rank, name, process_set))

    def broadcast_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: object = None
    ) -> Handle[T]:
        """`broadcast` that returns at once; the root's tensor must not be written until the handle is synchronized."""
        parameters = _rooted(root_rank, name, process_set)
        return self._submitter.start_one(Kind.BROADCAST, tensor, None, parameters)

    def broadcast_(self, tensor: T, root_rank: int, name: str | None = None, process_set: object = None) -> T:
        """`broadcast` into `tensor`; returns it."""
        return self._submitter.run(Kind.BROADCAST, tensor, tensor, _rooted(root_rank, name, process_set))

    def broadcast_async_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: object = None
    ) -> Handle[T]:
        """`broadcast` into `tensor` that returns at once; do not touch the tensor until the handle is synchronized."""
        parameters = _rooted(root_rank, name, process_set)
        return self._submitter.start_one(Kind.BROADCAST, tensor, tensor, parameters)

    def broadcast_parameters(self, params: object, root_rank: int = 0) -> None:
        """Copy rank `root_rank`'s tensors into everybody's, in place: usually `model.state_dict()`, buffers included.

        Args:
            params: what the framework's plugin documents: a mapping of names to tensors, or (name, tensor) pairs.
            root_rank: whose values all ranks get.
        """
        handles = [
            self.broadcast_async_(tensor, root_rank, f"parameters.{name}")
            for name, tensor in self.adapter.items(params)
        ]
        for handle in handles:
            handle.wait()

    def _reduce_all(self, sources: Sequence[T], targets: Sequence[T | None], parameters: Parameters) -> Handle[list[T]]:
        _check_sequence(sources)
        return self._submitter.start(Kind.ALLREDUCE, sources, targets, parameters)


def _only(results: list[T]) -> T:
    return results[0]


def _check_sequence(tensors: object) -> None:
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"a grouped operation takes a list or tuple of tensors, not {type(tensors).__name__}")
    if not tensors:
        raise ValueError("a grouped operation needs at least one tensor")


def _reducing(
    average: bool | None,
    name: str | None,
    op: ReduceOp | None,
    prescale: float,
    postscale: float,
    process_set: object,
) -> Parameters:
    if process_set is not None:
        check_process_set(process_set)
    reduce = ReduceOp.AVERAGE if average is None and op is None else reduction(average, op)
    return Parameters(name or "", reduce, 0, prescale, postscale)


def _rooted(root_rank: int, name: str | None, process_set: object) -> Parameters:
    check_process_set(process_set)
    check_root(root_rank, _world.size())
    return Parameters(name or "", root=root_rank)
