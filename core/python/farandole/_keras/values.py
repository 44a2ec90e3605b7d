"""Collectives of values outside of models: tensors in, tensors out; for numbers and arrays, arrays and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from farandole._api.ops import Average, ReduceOp
from farandole._keras.exchange import Framework, Named
from farandole._training.compression import Compressor

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    Plain: TypeAlias = float | Sequence[object] | Array

Tensor = TypeVar("Tensor")


class Values(Named, Generic[Tensor]):
    """The functions for one framework."""

    def __init__(self, framework: Framework[Tensor, Any], module: str) -> None:
        """Make them for this module."""
        super().__init__(module, "_values")
        self._operations, self._none = framework.operations, framework.compression.none
        self._tensor, self._result = framework.tensor, framework.result

    @overload
    def allgather(self, value: Tensor, name: str | None = None) -> Tensor: ...
    @overload
    def allgather(self, value: Plain, name: str | None = None) -> Array: ...
    def allgather(self, value: Any, name: str | None = None) -> Any:
        """The plugin's `allgather`, likewise.

        Example:
            >>> hvd.allgather([1.0 * hvd.rank()]).tolist()
            [0.0, 1.0]
        """
        return self._result(value, self._operations.allgather(self._tensor(value), name=name))

    @overload
    def allreduce(
        self,
        value: Tensor,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: ReduceOp | None = None,
        compression: Compressor[Tensor] | None = None,
    ) -> Tensor: ...
    @overload
    def allreduce(
        self,
        value: Plain,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: ReduceOp | None = None,
        compression: Compressor[Tensor] | None = None,
    ) -> Array: ...
    def allreduce(
        self,
        value: Any,
        name: str | None = None,
        average: bool | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: ReduceOp | None = None,
        compression: Compressor[Tensor] | None = None,
    ) -> Any:
        """The plugin's `allreduce` of anything that its framework makes a tensor of.

        Of a tensor the result is a tensor; of everything else a numpy array or a number, and in a graph a tensor.

        Example:
            >>> float(hvd.allreduce(1.0 * hvd.rank()))
            0.5
        """
        result = self._operations.allreduce(
            self._tensor(value),
            average=average,
            name=name,
            compression=compression or self._none,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
        return self._result(value, result)

    @overload
    def broadcast(self, value: Tensor, root_rank: int, name: str | None = None) -> Tensor: ...
    @overload
    def broadcast(self, value: Plain, root_rank: int, name: str | None = None) -> Array: ...
    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """The plugin's `broadcast`, likewise.

        Example:
            >>> hvd.broadcast([1.0 * hvd.rank()], root_rank=1).tolist()
            [1.0]
        """
        return self._result(value, self._operations.broadcast(self._tensor(value), root_rank, name=name))

    @overload
    def reducescatter(self, value: Tensor, name: str | None = None, op: ReduceOp = Average) -> Tensor: ...
    @overload
    def reducescatter(self, value: Plain, name: str | None = None, op: ReduceOp = Average) -> Array: ...
    def reducescatter(self, value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
        """The plugin's `reducescatter`, likewise.

        Example:
            >>> hvd.reducescatter([1.0, 1.0], op=hvd.Sum).tolist()  # of two rows each rank gets one
            [2.0]
        """
        return self._result(value, self._operations.reducescatter(self._tensor(value), name=name, op=op))
