"""The examples in docstrings of public functions and classes: which names need one, and a run of all on two ranks.

A module's names are those of its `__all__`, and those of the modules among them. Errors, enumerations and values need
no example. A name that another module passes on is left out with `but`, since that module's test covers it.
"""

from __future__ import annotations

import doctest
import enum
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from farandole.testing import World

START = "\nExample:\n    >>> "
TIMEOUT_S = 180.0  # Keras compiles several models


def documented(module: ModuleType, but: Sequence[ModuleType] = ()) -> list[tuple[str, str]]:
    """(name, docstring) of each function and class of the module, each docstring once, without those of `but`."""
    known = {text for other in but for _, text in _all_of(other)}
    found = []
    for name, text in _all_of(module):
        if not text or text not in known:
            found.append((name, text))
            known.add(text)
    return found


def lacking(module: ModuleType, but: Sequence[ModuleType] = ()) -> list[str]:
    """The names of the functions and classes without an example."""
    return [name for name, text in documented(module, but) if START not in text]


def run_on_two_ranks(module: str, words: Mapping[str, str], but: Sequence[str] = ()) -> list[str]:
    """Each rank's report of the examples that do not hold, "" where all do.

    Args:
        module: called `hvd` in the examples.
        words: the other names in the examples, each with the module that it means, such as `tensorflow:keras`.
        but: the modules whose names are left out.
    """
    with World(2) as world:  # one of its own, since the example of shutdown leaves it
        return world.run(failures, module, dict(words), list(but), timeout=TIMEOUT_S)


def failures(module: str, words: dict[str, str], but: list[str]) -> str:
    """Runs the examples on this rank, in the same order on all ranks; returns a report of those that do not hold."""
    report: list[str] = []
    hvd = importlib.import_module(module)
    meant = {word: pkgutil.resolve_name(name) for word, name in words.items()}
    for name, text in documented(hvd, [importlib.import_module(other) for other in but]):
        test = doctest.DocTestParser().get_doctest(text, {"hvd": hvd, **meant}, name, None, 0)
        doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return "".join(report)


def _all_of(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name in vars(module)["__all__"]:
        value = getattr(module, name)
        if inspect.ismodule(value):
            yield from ((f"{name}.{inner}", text) for inner, text in _all_of(value))
        elif inspect.isroutine(value) or _needs_example(value):
            yield name, inspect.getdoc(value) or ""


def _needs_example(value: Any) -> bool:
    return inspect.isclass(value) and not issubclass(value, BaseException | enum.Enum)
