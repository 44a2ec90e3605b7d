"""What a framework that differentiates eagerly supplies, so that results remember the tensors that they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from farandole._calls import Parameters
from farandole._ops import Kind

T = TypeVar("T")


class Recorder(Protocol[T]):
    """Gives the new tensors of operations their gradients. What is written into given tensors is not recorded."""

    def wants(self, source: T, /) -> bool:
        """Whether what comes of this tensor is to have a gradient; asked at each call, so it must be cheap."""

    def record(
        self, kind: Kind, sources: Sequence[T], parameters: Parameters, splits: Sequence[int], /
    ) -> Callable[[list[T]], list[T]]:
        """What gives the results of an operation a gradient; it `wants` one of the sources at least.

        Called when the operation has started; what it returns, by the first who waits, with the results. Those of an
        alltoall are what came and, as int64 and without gradient, how many rows from each rank; its `splits`, how many
        rows went to each, are empty where all got as many.
        """
