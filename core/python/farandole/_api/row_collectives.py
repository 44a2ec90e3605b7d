"""Operations along the first dimension. The core allocates the results, since their row counts are not known before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, overload

from farandole._api.adapter import Adapter, DType
from farandole._api.basic_collectives import BasicCollectives, check
from farandole._api.calls import Parameters, plain, reducing
from farandole._api.errors import ArgumentError
from farandole._api.handles import Handle
from farandole._api.ops import Average, Kind, ReduceOp
from farandole._api.process_sets import ProcessSet, size_of
from farandole._api.refusals import CallGuard
from farandole._runtime.call_sites import register_plugin
from farandole._runtime.submit import Submitter
from farandole._training.recorder import Recorder

T = TypeVar("T")


class RowCollectives(BasicCollectives[T]):
    """allgather, alltoall, reducescatter and operations built on them; see Collectives for their common rules."""

    def __init__(self, adapter: Adapter[T], recorder: Recorder[T] | None = None) -> None:
        """`recorder`: makes new tensors remember those that they came from; without it they have no gradient."""
        self._submitter: Submitter[T] = Submitter(adapter, recorder)
        super().__init__(adapter, self._submitter.perform, self._submitter.run)
        register_plugin(type(adapter).__module__, *([adapter.package] if adapter.package else []))
        self.adapter = adapter

    def allgather_async(self, tensor: T, name: str | None = None, process_set: ProcessSet | None = None) -> Handle[T]:
        """`allgather` that returns at once; the tensor must not be written until the handle is synchronized.

        Example:
            >>> hvd.allgather_async(np.array([hvd.rank()])).wait()
            array([0, 1])
        """
        return self._gather([tensor], plain(name, process_set)).map(_only)

    def grouped_allgather_async(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet | None = None
    ) -> Handle[list[T]]:
        """`grouped_allgather` that returns at once.

        Example:
            >>> hvd.grouped_allgather_async([np.array([hvd.rank()]), np.ones(1)]).wait()
            [array([0, 1]), array([1., 1.])]
        """
        return self._gather(tensors, plain(name, process_set))

    @overload
    def alltoall(
        self, tensor: T, splits: None = None, name: str | None = None, process_set: ProcessSet | None = None
    ) -> T: ...
    @overload
    def alltoall(
        self, tensor: T, splits: object, name: str | None = None, process_set: ProcessSet | None = None
    ) -> tuple[T, T]: ...
    def alltoall(
        self, tensor: T, splits: object = None, name: str | None = None, process_set: ProcessSet | None = None
    ) -> T | tuple[T, T]:
        """Send each rank its part of the tensor's rows, and return the received rows in rank order as a new tensor.

        Args:
            tensor: with at least one dimension; all but the first, and the dtype, are alike on all ranks.
            splits: how many rows go to each rank of the set, which add up to all rows: a list, or a tensor of integers
                with one dimension. Without it every rank gets as many, and the rows must be a multiple of the ranks.
            name: see the class.
            process_set: see the class.

        Returns:
            The tensor; where `splits` is given, (the tensor, how many rows came from each rank of the set), the latter
            with the dtype of `splits`, or int64 where that is a list.

        Example:
            >>> hvd.alltoall(np.array([hvd.rank(), hvd.rank()]))
            array([0, 1])
            >>> rows, received = hvd.alltoall(np.full(3, hvd.rank()), splits=[1, 2])
            >>> rows.tolist() == ([0, 1] if hvd.rank() == 0 else [0, 0, 1, 1])
            True
            >>> received.tolist() == [hvd.rank() + 1] * 2
            True
        """
        return self._exchange(tensor, splits, plain(name, process_set), process_set).wait()

    @overload
    def alltoall_async(
        self, tensor: T, splits: None = None, name: str | None = None, process_set: ProcessSet | None = None
    ) -> Handle[T]: ...
    @overload
    def alltoall_async(
        self, tensor: T, splits: object, name: str | None = None, process_set: ProcessSet | None = None
    ) -> Handle[tuple[T, T]]: ...
    def alltoall_async(
        self, tensor: T, splits: object = None, name: str | None = None, process_set: ProcessSet | None = None
    ) -> Handle[Any]:
        """`alltoall` that returns at once; the tensor must not be written until the handle is synchronized.

        Example:
            >>> hvd.alltoall_async(np.array([hvd.rank(), hvd.rank()])).wait()
            array([0, 1])
        """
        return self._exchange(tensor, splits, plain(name, process_set), process_set)

    def reducescatter_async(
        self,
        tensor: T,
        name: str | None = None,
        op: ReduceOp = Average,
        process_set: ProcessSet | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[T]:
        """`reducescatter` that returns at once; the tensor must not be written until the handle is synchronized.

        Example:
            >>> hvd.reducescatter_async(np.array([3.0, 3.0]), op=hvd.Sum).wait()
            array([6.])
        """
        parameters = reducing(None, name, op, prescale_factor, postscale_factor, process_set)
        return self._scatter([tensor], parameters).map(_only)

    def grouped_reducescatter_async(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        op: ReduceOp = Average,
        process_set: ProcessSet | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[list[T]]:
        """`grouped_reducescatter` that returns at once.

        Example:
            >>> hvd.grouped_reducescatter_async([np.ones(2), np.ones(4)], op=hvd.Sum).wait()
            [array([2.]), array([2., 2.])]
        """
        return self._scatter(tensors, reducing(None, name, op, prescale_factor, postscale_factor, process_set))

    def sparse_allreduce(
        self,
        tensor: tuple[T, T],
        op: ReduceOp = Average,
        name: str | None = None,
        process_set: ProcessSet | None = None,
    ) -> tuple[T, T]:
        """Combine tensors that hold only some of the rows, such as the gradient of an embedding.

        Args:
            tensor: (indices, values): `indices` of shape (rows,) or (rows, dimensions) say where `values`, of shape
                (rows, ...), belong. Rows may differ between ranks, and may be 0.
            op: Average (default; floats only) or Sum.
            name: see the class.
            process_set: see the class.

        Returns:
            (indices, values) of all ranks, one after the other, so that an index may come more than once: their sum is
            the value there. For Average the values are divided by the size of the set.

        Example:
            >>> hvd.sparse_allreduce((np.array([hvd.rank()]), np.ones((1, 2))), op=hvd.Sum)
            (array([0, 1]), array([[1., 1.],
                   [1., 1.]]))
        """
        return self._gather_sparse(tensor, op, plain(name, process_set), process_set).wait()

    def sparse_allreduce_async(
        self,
        tensor: tuple[T, T],
        op: ReduceOp = Average,
        name: str | None = None,
        process_set: ProcessSet | None = None,
    ) -> Handle[tuple[T, T]]:
        """`sparse_allreduce` that returns at once; do not write the tensors until the handle is synchronized.

        Example:
            >>> hvd.sparse_allreduce_async((np.array([4]), np.ones((1, 1))), op=hvd.Sum).wait()
            (array([4, 4]), array([[1.],
                   [1.]]))
        """
        return self._gather_sparse(tensor, op, plain(name, process_set), process_set)

    def _gather(self, tensors: Sequence[T], parameters: Parameters) -> Handle[list[T]]:
        check(Kind.ALLGATHER, tensors, parameters)
        return self._submitter.collect(Kind.ALLGATHER, tensors, parameters)

    def _scatter(self, tensors: Sequence[T], parameters: Parameters) -> Handle[list[T]]:
        check(Kind.REDUCESCATTER, tensors, parameters)
        return self._submitter.collect(Kind.REDUCESCATTER, tensors, parameters)

    def _exchange(
        self, tensor: T, splits: Any, parameters: Parameters, process_set: ProcessSet | None
    ) -> Handle[T] | Handle[tuple[T, T]]:
        if splits is None:
            return self._submitter.collect(Kind.ALLTOALL, [tensor], parameters).map(_only)
        with CallGuard(parameters[0], parameters[5]):
            rows = _row_counts(splits, size_of(process_set))
            try:
                dtype, like = self.adapter.describe(splits)[0], splits
            except TypeError:  # no tensor of the framework
                dtype, like = DType.INT64, tensor
        results = self._submitter.collect(Kind.ALLTOALL, [tensor], parameters, rows, also_like=like)

        def finish(both: list[T]) -> tuple[T, T]:
            result, received = both
            return result, received if dtype is DType.INT64 else self.adapter.cast(received, dtype)

        return results.map(finish)

    def _gather_sparse(
        self, tensor: tuple[T, T], op: ReduceOp, parameters: Parameters, process_set: ProcessSet | None
    ) -> Handle[tuple[T, T]]:
        with CallGuard(parameters[0], parameters[5]):
            indices, values = tensor
            self._check_sparse(indices, values, op)
        factor = 1.0 / size_of(process_set) if op == ReduceOp.AVERAGE else 1.0

        def finish(both: list[T]) -> tuple[T, T]:
            if factor != 1.0:
                self.adapter.scale_(both[1], factor)
            return both[0], both[1]

        return self._gather([indices, values], parameters).map(finish)

    def _check_sparse(self, indices: T, values: T, op: ReduceOp) -> None:
        if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
            raise ArgumentError(f"op={op!r}: sparse tensors can only be reduced by Sum or Average")
        dtype, shape = self.adapter.describe(values)
        places = self.adapter.describe(indices)[1]
        if not shape or not places or shape[0] != places[0]:
            raise ArgumentError(f"indices of shape {tuple(places)} do not belong to values of shape {tuple(shape)}")
        if op == ReduceOp.AVERAGE and not dtype.is_floating:
            raise ArgumentError(f"an average of sparse tensors is for floats, not for {dtype.title}; use op=Sum")


def _only(results: list[T]) -> T:
    return results[0]


def _row_counts(splits: Any, members: int) -> list[int]:
    try:
        values = splits.tolist() if hasattr(splits, "tolist") else splits
        rows = [each.__index__() for each in values]
    except (TypeError, AttributeError):
        raise ArgumentError(f"splits must be a list or a one-dimensional tensor of integers, not {splits!r}") from None
    if len(rows) != members:
        raise ArgumentError(f"there are {len(rows)} splits for {members} ranks; give one for each rank of the set")
    return rows
