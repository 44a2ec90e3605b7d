"""Every public function has an example in its docstring, and its examples hold on two ranks."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator

import farandole.numpy as hvd
import pytest
from farandole.testing import World


def public_functions() -> Iterator[tuple[str, str]]:
    """The names of the functions of farandole.numpy, and their docstrings."""
    for name in hvd.__all__:
        if inspect.isroutine(getattr(hvd, name)):
            yield name, inspect.getdoc(getattr(hvd, name)) or ""


def failed_examples() -> str:
    """Runs the examples on this rank, each docstring once; returns a report of those that do not hold."""
    import numpy as np

    report: list[str] = []
    names = {text: name for name, text in public_functions()}
    for text, name in names.items():
        test = doctest.DocTestParser().get_doctest(text, {"hvd": hvd, "np": np}, name, None, 0)
        doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return "".join(report)


@pytest.mark.parametrize(("name", "docstring"), list(public_functions()))
def test_every_public_function_has_an_example(name: str, docstring: str) -> None:
    assert "\nExample:\n    >>> " in docstring


def test_examples_hold_on_two_ranks() -> None:
    with World(2) as world:  # one of its own, since the example of shutdown leaves it
        assert world.run(failed_examples) == ["", ""]
