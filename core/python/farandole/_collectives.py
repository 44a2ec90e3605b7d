"""The operations of every plugin, with the names, arguments and defaults that Horovod's users know.

Written once over an Adapter; `farandole.numpy` and most of a plugin's names are these methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from farandole._calls import Parameters, check_sequence, reducing, rooted
from farandole._compression import Compressor, check_compressor
from farandole._handles import Handle
from farandole._ops import Kind, ReduceOp
from farandole._process_sets import ProcessSet
from farandole._row_collectives import RowCollectives

T = TypeVar("T")
_ALLREDUCE, _BROADCAST = Kind.ALLREDUCE, Kind.BROADCAST  # to look a member up takes 70 ns


class Collectives(RowCollectives[T]):
    """All operations on the tensors of one framework.

    Common to all of them: every rank of the set must make the call, with the same `name` where one is given; unnamed
    calls are matched by their order. Ranks that disagree about dtype or shape all raise MismatchError. A name may be in
    flight once per rank and set. Forms ending in `_async` return a Handle for `poll` and `synchronize`, forms ending in
    `_` write into the tensor they are given; the others return a new tensor. `process_set`: among which ranks the
    operation takes place, by default all; this rank must be one of them, and `add_process_set` must have made the set
    known. A root is a rank of the world, in sets too.

    Raises, in all of them: NotInitializedError; ValueError for misuse that this rank sees alone; MismatchError;
    PeerLostError; DeadlineError.
    """

    def allreduce(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        compression: Compressor[T] | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> T:
        """Combine the ranks' tensors element by element into a new tensor of the same shape and dtype.

        Args:
            tensor: of any shape and supported dtype; alike on all ranks.
            average: deprecated; True means op=Average, False op=Sum.
            name: see the class.
            compression: what to send instead, such as `Compression.fp16`.
            op: Average (default), Sum, Min, Max, Product or Adasum. An average of integers is truncated.
            prescale_factor: multiplies before the reduction.
            postscale_factor: multiplies after it.
            process_set: see the class.
        """
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        if compression is None:
            return self._submitter.run(_ALLREDUCE, tensor, None, parameters)
        try:
            sent, context = compression.compress(tensor)
        except AttributeError:
            check_compressor(compression)
            raise
        return compression.decompress(self._submitter.run(_ALLREDUCE, sent, None, parameters), context)

    def allreduce_async(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> Handle[T]:
        """`allreduce` that returns at once; the tensor must not be written until the handle is synchronized."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.start_one(_ALLREDUCE, tensor, None, parameters)

    def allreduce_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> T:
        """`allreduce` in place; returns `tensor`."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.run(_ALLREDUCE, tensor, tensor, parameters)

    def allreduce_async_(
        self,
        tensor: T,
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> Handle[T]:
        """`allreduce` in place that returns at once; do not touch the tensor until the handle is synchronized."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.start_one(_ALLREDUCE, tensor, tensor, parameters)

    def grouped_allreduce(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        compression: Compressor[T] | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> list[T]:
        """`allreduce` of several tensors as one operation: it starts when every rank has called it with all of them."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        check_sequence(tensors)
        compression = compression or self.Compression.none
        check_compressor(compression)
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
        process_set: ProcessSet | None = None,
    ) -> Handle[list[T]]:
        """`grouped_allreduce` that returns at once."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._reduce_all(tensors, [None] * len(tensors), parameters)

    def grouped_allreduce_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> list[T]:
        """`grouped_allreduce` in place; returns the tensors."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._reduce_all(tensors, tensors, parameters).wait()

    def grouped_allreduce_async_(
        self,
        tensors: Sequence[T],
        average: bool | None = None,
        name: str | None = None,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> Handle[list[T]]:
        """`grouped_allreduce` in place that returns at once."""
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._reduce_all(tensors, tensors, parameters)

    def broadcast(self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None) -> T:
        """Rank `root_rank`'s tensor, as a new tensor, on every rank; shape and dtype are alike on all ranks."""
        return self._submitter.run(_BROADCAST, tensor, None, rooted(root_rank, name, process_set))

    def broadcast_async(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None
    ) -> Handle[T]:
        """`broadcast` that returns at once; the root's tensor must not be written until the handle is synchronized."""
        parameters = rooted(root_rank, name, process_set)
        return self._submitter.start_one(_BROADCAST, tensor, None, parameters)

    def broadcast_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None
    ) -> T:
        """`broadcast` into `tensor`; returns it."""
        return self._submitter.run(_BROADCAST, tensor, tensor, rooted(root_rank, name, process_set))

    def broadcast_async_(
        self, tensor: T, root_rank: int, name: str | None = None, process_set: ProcessSet | None = None
    ) -> Handle[T]:
        """`broadcast` into `tensor` that returns at once; do not touch the tensor until the handle is synchronized."""
        parameters = rooted(root_rank, name, process_set)
        return self._submitter.start_one(_BROADCAST, tensor, tensor, parameters)

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
        check_sequence(sources)
        return self._submitter.start(_ALLREDUCE, sources, targets, parameters)
