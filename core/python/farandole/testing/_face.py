"""The input of a conformance check: the plugin's names, tensors from closed formulas, and ways to compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

from farandole import ArgumentError, MismatchError
from farandole.plugin import DType

F = TypeVar("F", bound=Callable[..., None])

ALL_DTYPES = tuple(dtype.title for dtype in DType)

_KINDS = {dtype.title: dtype.kind for dtype in DType}


@dataclass(frozen=True)
class Subject:
    """A plugin as the suite sees it. Functions may be lambdas: they travel by value."""

    module: ModuleType  # has the public names
    make: Callable[[list[Any], tuple[int, ...], str], Any]  # flat values, shape, dtype name -> tensor
    values: Callable[[Any], list[Any]]  # tensor -> flat Python numbers
    shape: Callable[[Any], tuple[int, ...]] = lambda tensor: tuple(tensor.shape)
    strided: Callable[[list[Any], str], Any] | None = None  # values, dtype name -> 1-D tensor in strided memory
    unsupported: Callable[[], Any] | None = None  # makes a tensor of an element type that cannot be reduced
    settle: Callable[[], object] | None = None  # waits for what was called, where errors are raised only then
    dtypes: tuple[str, ...] = ALL_DTYPES
    absent: frozenset[str] = field(default_factory=frozenset)  # names that the framework does not offer
    mismatch_error: type[BaseException] = MismatchError
    misuse_error: type[BaseException] = ArgumentError


def needs(*names: str) -> Callable[[F], F]:
    """Mark a check with the plugin's names without which it cannot run."""

    def mark(check: F) -> F:
        check.needs = frozenset(names)  # type: ignore[attr-defined]
        return check

    return mark


class Face:
    """One plugin on one rank."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.module: Any = subject.module
        self.rank: int = subject.module.rank()
        self.size: int = subject.module.size()

    @property
    def ranks(self) -> range:
        return range(self.size)

    @property
    def numbers(self) -> list[str]:
        """The dtypes of numbers, for which every reduction but Adasum is defined."""
        return [dtype for dtype in self.subject.dtypes if _KINDS[dtype] in "uif"]

    @property
    def integers(self) -> list[str]:
        """The dtypes of integers."""
        return [dtype for dtype in self.subject.dtypes if _KINDS[dtype] in "ui"]

    def limits(self, dtype: str) -> tuple[int, int]:
        """The least and the largest integer of a dtype."""
        values = 2 ** (8 * DType[dtype.upper()].itemsize)
        return (0, values - 1) if _KINDS[dtype] == "u" else (-values // 2, values // 2 - 1)

    def make(self, values: list[Any], shape: tuple[int, ...] | None = None, dtype: str = "float32") -> Any:
        """A tensor; by default one-dimensional."""
        plain = [float(v) for v in values] if _KINDS[dtype] == "f" else list(values)
        return self.subject.make(plain, (len(values),) if shape is None else shape, dtype)

    def equal(self, tensor: Any, values: list[Any], shape: tuple[int, ...] | None = None, why: object = "") -> None:
        """Fail unless the tensor has exactly these contents (and this shape)."""
        got, got_shape = self.subject.values(tensor), tuple(self.subject.shape(tensor))
        want_shape = (len(values),) if shape is None else shape
        assert got_shape == want_shape, f"{why}: shape {got_shape} instead of {want_shape}"
        wrong = [(i, g, w) for i, (g, w) in enumerate(zip(got, values, strict=True)) if g != w]
        assert not wrong, (
            f"{why}: {len(wrong)} of {len(values)} elements differ, first (index, is, should be) {wrong[0]}"
        )

    def reduces(self, call: Callable[..., Any], tensor: Any, columns: Sequence[Any], shape: Any, dtype: str) -> None:
        """Fail unless `call` gives each reduction but Adasum of these columns, one for each element."""
        truncate = int if "int" in dtype else float
        rules: dict[str, Callable[[Any], Any]] = {
            "Sum": sum,
            "Average": lambda column: truncate(sum(column) / self.size),
            "Min": min,
            "Max": max,
            "Product": math.prod,
        }
        for op, rule in rules.items():
            result, wanted = call(tensor, op=getattr(self.module, op)), list(map(rule, columns))
            if op == "Average" and truncate is float:  # a third is rounded
                got = self.subject.values(result)
                assert all(math.isclose(g, v, rel_tol=1e-2) for g, v in zip(got, wanted, strict=True)), (dtype, got)
            else:
                self.equal(result, wanted, shape, why=(dtype, op))

    def misused(self, call: Callable[[], object], *parts: object) -> None:
        """Fail unless `call` raises the plugin's misuse error with all `words` in its message."""
        self.raises(self.subject.misuse_error, call, *parts)

    def mismatched(self, call: Callable[[], object], *parts: object) -> None:
        """Fail unless `call` raises the plugin's mismatch error with all `words` in its message."""
        self.raises(self.subject.mismatch_error, call, *parts)

    def raises(self, kind: type[BaseException], call: Callable[[], object], *parts: object) -> None:
        """Fail unless `call` raises `kind` with all `words` in its message."""
        try:
            call()
            if self.subject.settle is not None:
                self.subject.settle()
        except kind as error:
            lacking = [word for word in parts if str(word) not in str(error)]
            assert not lacking, f"the message lacks {lacking}: {error}"
            return
        raise AssertionError(f"{kind.__name__} was not raised")
