"""Every public function and class has an example in its docstring, and its examples hold on two ranks."""

import sys
from types import ModuleType

import docstring_examples
import farandole.elastic
import farandole.numpy
import pytest


def test_every_public_name_has_an_example() -> None:
    assert docstring_examples.lacking(farandole.numpy) == []
    assert docstring_examples.lacking(farandole.elastic) == []


def test_examples_hold_on_two_ranks() -> None:
    assert docstring_examples.run_on_two_ranks("farandole.numpy", {"np": "numpy"}) == ["", ""]
    words = {"np": "numpy", "elastic": "farandole.elastic", "farandole": "farandole"}
    assert docstring_examples.run_on_two_ranks("farandole.elastic", words) == ["", ""]


# ---- The checks can fail ---------------------------------------------------------------------------------------------


def planted() -> ModuleType:
    module = ModuleType("planted")

    def right() -> None:
        """Right.

        Example:
            >>> 1 + 1
            2
        """

    def wrong() -> None:
        """Wrong.

        Example:
            >>> 1 + 1
            3
        """

    def bare() -> None:
        """None."""

    vars(module).update(right=right, wrong=wrong, bare=bare, number=1, __all__=["right", "wrong", "bare", "number"])
    return module


def test_a_name_without_an_example_is_found() -> None:
    assert docstring_examples.lacking(planted()) == ["bare"]
    assert docstring_examples.lacking(planted(), but=[planted()]) == []


def test_an_example_that_does_not_hold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "planted", planted())
    report = docstring_examples.failures("planted", {}, [])
    assert "wrong" in report and "right" not in report
