"""The blocking operations that return new tensors; every framework has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from farandole._api.calls import Parameters, check_sequence, plain, reducing
from farandole._api.forms import Act, Form
from farandole._api.ops import Average, Kind, ReduceOp, check_not_adasum
from farandole._api.process_sets import ProcessSet
from farandole._api.refusals import CallGuard
from farandole._training.compression import Casts, Compression, Compressor, check_compressor

T = TypeVar("T")
_ALLREDUCE = Kind.ALLREDUCE  # saves 70 ns for the lookup of the member
Perform = Callable[[Kind, Sequence[T], Parameters], list[T]]


class BasicCollectives(Generic[T]):
    """The operations that return new tensors, for a framework that performs them itself, in its graph or its engine.

    See Collectives, which adds handles and operations in place, for what all operations have in common.
    """

    def __init__(self, casts: Casts[T], perform: Perform[T], run: Act[T, T] | None = None) -> None:
        """Check and compress the tensors before `perform` gets them.

        Args:
            casts: describes and converts tensors; an Adapter does.
            perform: performs one operation on all tensors that it gets, and returns a new one for each.
            run: a faster path for one tensor without compression.
        """
        self.Compression: Compression[T] = Compression(casts)
        self._perform = perform
        self._run: Act[T, T] = run or self._run_alone
        self.broadcast = Form(self._run, in_place=False).broadcast

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
            op: Average (default), Sum, Min, Max, Product or Adasum, whose source `ReduceOp` names. An average of
                integers is the exact sum, divided and truncated toward zero. Complex tensors take Sum and Average.
            prescale_factor: multiplies before the reduction.
            postscale_factor: multiplies after it.
            process_set: see the class.

        Example:
            >>> hvd.allreduce(np.array([1.0, 2.0]) * hvd.rank(), op=hvd.Sum)
            array([1., 2.])
        """
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        if compression is None:
            return self._run(_ALLREDUCE, tensor, None, parameters)
        return self._compressed(_ALLREDUCE, [tensor], parameters, compression)[0]

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
        """`allreduce` of several tensors as one operation: it starts when every rank has called it with all of them.

        Example:
            >>> hvd.grouped_allreduce([np.ones(1), np.ones(2)], op=hvd.Sum)
            [array([2.]), array([2., 2.])]
        """
        parameters = reducing(average, name, op, prescale_factor, postscale_factor, process_set)
        return self._compressed(_ALLREDUCE, tensors, parameters, compression)

    def allgather(self, tensor: T, name: str | None = None, process_set: ProcessSet | None = None) -> T:
        """Concatenate the ranks' tensors along the first dimension, in rank order, into a new tensor.

        The first dimension may differ between ranks and may be 0; the others and the dtype are alike.

        Example:
            >>> hvd.allgather(np.full(hvd.rank() + 1, hvd.rank()))
            array([0, 1, 1])
        """
        return self._perform(Kind.ALLGATHER, [tensor], plain(name, process_set))[0]

    def grouped_allgather(
        self, tensors: Sequence[T], name: str | None = None, process_set: ProcessSet | None = None
    ) -> list[T]:
        """`allgather` of several tensors as one operation.

        Example:
            >>> hvd.grouped_allgather([np.array([hvd.rank()]), np.ones(1)])
            [array([0, 1]), array([1., 1.])]
        """
        parameters = plain(name, process_set)
        check(Kind.ALLGATHER, tensors, parameters)
        return self._perform(Kind.ALLGATHER, tensors, parameters)

    def reducescatter(
        self,
        tensor: T,
        name: str | None = None,
        compression: Compressor[T] | None = None,
        op: ReduceOp = Average,
        process_set: ProcessSet | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> T:
        """Return this rank's rows of the result of `allreduce`, as a new tensor.

        Every rank gets the same number of rows; if the rows do not divide evenly, the first ranks get one more. `op` is
        any reduction except Adasum.

        Example:
            >>> hvd.reducescatter(np.array([3.0, 3.0]), op=hvd.Sum)
            array([6.])
        """
        parameters = reducing(None, name, op, prescale_factor, postscale_factor, process_set)
        return self._compressed(Kind.REDUCESCATTER, [tensor], parameters, compression)[0]

    def grouped_reducescatter(
        self,
        tensors: Sequence[T],
        name: str | None = None,
        compression: Compressor[T] | None = None,
        op: ReduceOp = Average,
        process_set: ProcessSet | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> list[T]:
        """`reducescatter` of several tensors as one operation.

        Example:
            >>> hvd.grouped_reducescatter([np.ones(2), np.ones(4)], op=hvd.Sum)
            [array([2.]), array([2., 2.])]
        """
        parameters = reducing(None, name, op, prescale_factor, postscale_factor, process_set)
        return self._compressed(Kind.REDUCESCATTER, tensors, parameters, compression)

    def _run_alone(self, kind: Kind, tensor: T, target: T | None, parameters: Parameters) -> T:
        assert target is None, "an operation in place"
        return self._perform(kind, [tensor], parameters)[0]

    def _compressed(
        self, kind: Kind, tensors: Sequence[T], parameters: Parameters, compression: Compressor[T] | None
    ) -> list[T]:
        check(kind, tensors, parameters)
        with CallGuard(parameters[0], parameters[5]):
            compression = compression or self.Compression.none
            check_compressor(compression)
            sent, contexts = zip(*map(compression.compress, tensors), strict=True)
        return list(map(compression.decompress, self._perform(kind, sent, parameters), contexts))


def check(kind: Kind, tensors: Sequence[object], parameters: Parameters) -> None:
    """Raise TypeError or ValueError if `tensors` is not a group of tensors, or the reduction does not fit the kind."""
    with CallGuard(parameters[0], parameters[5]):
        check_sequence(tensors)
        if kind is Kind.REDUCESCATTER:
            check_not_adasum(ReduceOp(parameters[1]), "reducescatter")
