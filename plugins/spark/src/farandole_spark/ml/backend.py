"""Backends, which run the ranks of a `fit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import farandole
from farandole.engine import pack_call, unpack_call

from farandole_spark import _cluster
from farandole_spark._run import run

__all__ = ["Backend", "LocalBackend", "SparkBackend"]
T = TypeVar("T")


class Backend:
    """Runs a function on ranks. Derive a class from it for a cluster of your own."""

    def run(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[T]:
        """Call the function on each rank, and return the results in the order of the ranks.

        Args:
            fn: function to call, which calls `init()`.
            args: positional arguments of the function.
            kwargs: keyword arguments of the function.
            env: environment variables for the ranks.
        """
        raise NotImplementedError

    def num_processes(self) -> int:
        """Return the number of ranks."""
        raise NotImplementedError


class SparkBackend(Backend):
    """Runs ranks in tasks of Spark, by `farandole_spark.run`.

    Args:
        num_proc: number of ranks, by default all slots of the cluster.
        env: variables for the ranks.
        options: other arguments of `farandole_spark.run`, such as `start_timeout` and `stdout`.
    """

    _run: Callable[..., list[Any]] = staticmethod(run)

    def __init__(self, num_proc: int | None = None, env: Mapping[str, str] | None = None, **options: Any) -> None:
        self._num_proc, self._env, self._options = num_proc, dict(env or {}), options

    def run(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[T]:
        """See `Backend.run`."""
        return self._run(fn, args, kwargs, self._num_proc, env={**self._env, **(env or {})}, **self._options)

    def num_processes(self) -> int:
        """Return the number of ranks, by default the present number of slots of the cluster."""
        return self._num_proc or _cluster.find(self._options.get("spark")).slots().total or 1


class LocalBackend(Backend):
    """Runs ranks on the driver's machine, by `farandole.run`.

    Args:
        num_proc: number of ranks.
        env: variables for the ranks.
        options: other arguments of `farandole.run`.
    """

    def __init__(self, num_proc: int = 1, env: Mapping[str, str] | None = None, **options: Any) -> None:
        self._num_proc, self._env, self._options = num_proc, dict(env or {}), options

    def run(
        self,
        fn: Callable[..., T],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> list[T]:
        """See `Backend.run`."""
        call = pack_call(fn, tuple(args), dict(kwargs or {}), "LocalBackend.run")
        arguments = {**self._env, **(env or {})}, call
        return farandole.run(_call_with, arguments, np=self._num_proc, **self._options)

    def num_processes(self) -> int:
        """Return the number of ranks."""
        return self._num_proc


def _call_with(variables: Mapping[str, str], call: bytes) -> Any:
    """Set variables, then import the modules of the call and make it."""
    os.environ.update(variables)
    fn, args, kwargs = unpack_call(call)
    return fn(*args, **kwargs)
