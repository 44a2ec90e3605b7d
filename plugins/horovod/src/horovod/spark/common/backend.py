"""Who runs the ranks of a `fit`, with the arguments of horovod.spark.run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from farandole_spark.ml import backend as _backend
from farandole_spark.ml.backend import Backend, LocalBackend

import horovod.spark

T = TypeVar("T")


class SparkBackend(_backend.SparkBackend):
    """Runs ranks in tasks of Spark.

    Args:
        num_proc: number of ranks, by default all slots of the cluster.
        env: variables for the ranks.
        kwargs: other arguments of `horovod.spark.run`.
    """

    def __init__(self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(num_proc, env)
        self._arguments = {"num_proc": num_proc, **kwargs}
        self._variables = dict(env or {})

    def run(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[T]:
        """Call the function on each rank, and return the results in the order of the ranks."""
        return horovod.spark.run(fn, args, kwargs, env={**self._variables, **(env or {})}, **self._arguments)
