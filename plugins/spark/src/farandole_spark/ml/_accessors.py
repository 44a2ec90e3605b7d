"""Parameters with a getter and a setter each, as in Spark ML's classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import farandole
from pyspark.ml.param import Param, Params, TypeConverters

from farandole_spark._private import UNDEFINED, set_defaults, set_params

if TYPE_CHECKING:
    from typing_extensions import Self

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


class Parameters(Params):  # type: ignore[misc]  # PySpark is not read
    """Parameters that are None where neither a class nor the user sets them."""

    def __init__(self) -> None:
        super().__init__()
        set_defaults(self, **{param.name: None for param in self.params if not self.hasDefault(param)})

    def setParams(self, **values: Any) -> Self:
        """Set parameters by their names; None leaves one as it is. Raises ArgumentTypeError for an unknown name."""
        if unknown := [name for name in values if not self.hasParam(name)]:
            raise farandole.ArgumentTypeError(f"{type(self).__name__} has no parameter {unknown[0]!r}.")
        return set_params(self, **{name: value for name, value in values.items() if value is not None})


def param(
    name: str, converter: Converter[T], doc: str = "without effect"
) -> tuple[Any, Callable[[P, T], P], Callable[[Any], T]]:
    """A parameter, its setter and its getter, for the body of a class."""

    def set_value(owner: P, value: T) -> P:
        return set_params(owner, **{name: value})

    def get_value(owner: Any) -> T:
        return owner.getOrDefault(name)  # type: ignore[no-any-return]

    return Param(UNDEFINED, name, doc, converter), set_value, get_value
