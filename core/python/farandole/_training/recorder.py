"""The part that a framework with eager differentiation supplies, so that results remember their source tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from farandole._api.calls import Parameters
from farandole._api.ops import Kind

T = TypeVar("T")


class Recorder(Protocol[T]):
    """Gives the new tensors of operations their gradients. Writes into given tensors are not recorded."""

    def wants(self, source: T, /) -> bool:
        """Return whether what comes of this tensor is to have a gradient; asked at each call, so it must be cheap."""

    def record(
        self, kind: Kind, sources: Sequence[T], parameters: Parameters, splits: Sequence[int], /
    ) -> Callable[[list[T]], list[T]]:
        """A function that gives the results of an operation a gradient; the recorder `wants` one source at least.

        `record` is called when the operation has started, and its function by the first waiter, with the results. Those
        of an alltoall are the received rows and, as int64 and without gradient, how many came from each rank; its
        `splits`, how many rows went to each, are empty where all got as many.
        """
