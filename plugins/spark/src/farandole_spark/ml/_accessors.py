"""Getters and setters of parameters, which Spark ML's classes have for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from farandole_spark._private import set_params

P = TypeVar("P")
T = TypeVar("T")


class Setter(Generic[T]):
    """A method that sets a parameter and returns its owner: `setEpochs = Setter[int]("epochs")`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: P, kind: object = None) -> Callable[[T], P]:
        return lambda value: set_params(owner, **{self._name: value})


class Getter(Generic[T]):
    """A method that gives a parameter's value, or its default: `getEpochs = Getter[int]("epochs")`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: object = None) -> Callable[[], T]:
        return lambda: owner.getOrDefault(self._name)
