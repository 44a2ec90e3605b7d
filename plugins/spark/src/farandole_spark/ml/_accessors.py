"""Parameters with a getter and a setter each, as in Spark ML's classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyspark.ml.param import Param, TypeConverters

from farandole_spark._private import UNDEFINED, set_params

P = TypeVar("P")
T = TypeVar("T")
Converter = Callable[[Any], T]

INT: Converter[int] = TypeConverters.toInt
BOOL: Converter[bool] = TypeConverters.toBoolean
INT_OR_NONE: Converter[int | None] = TypeConverters.toInt  # Spark ML does not convert None
TEXT_OR_NONE: Converter[str | None] = TypeConverters.toString
NAMES: Converter[list[str]] = TypeConverters.toListString
NAMES_OR_NONE: Converter[list[str] | None] = TypeConverters.toListString
FLOATS_OR_NONE: Converter[list[float] | None] = TypeConverters.toListFloat
ANY: Converter[Any] = TypeConverters.identity


class Setter(Generic[T]):
    """A method that sets a parameter and returns its owner."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: P, kind: object = None) -> Callable[[T], P]:
        return lambda value: set_params(owner, **{self._name: value})


class Getter(Generic[T]):
    """A method that returns a parameter's value, or its default."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: object = None) -> Callable[[], T]:
        return lambda: owner.getOrDefault(self._name)


def param(name: str, converter: Converter[T], doc: str = "without effect") -> tuple[Any, Setter[T], Getter[T]]:
    """Return a parameter, its setter and its getter, for the body of a class."""
    return Param(UNDEFINED, name, doc, converter), Setter(name), Getter(name)
