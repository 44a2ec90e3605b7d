"""Names the part of a call that cannot be pickled: an argument, or a variable that the function uses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_DEEPEST = 6  # parts within parts that a message names


def find(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], travels: Callable[[object], bool]
) -> str:
    """The words for the innermost part that does not travel: "its global variable 'lock', a _thread.lock,"."""
    parts = [(f"its argument {number}", value) for number, value in enumerate(args)]
    parts += [(f"its argument {name!r}", value) for name, value in kwargs.items()]
    names, value = [], fn
    seen = {id(fn)}
    for name, part in [*parts, *_parts(fn)]:
        if not travels(part):
            names, value = [name], part
            break
    while len(names) in range(1, _DEEPEST):
        seen.add(id(value))
        inner = next(((name, part) for name, part in _parts(value) if id(part) not in seen and not travels(part)), None)
        if inner is None:
            break
        names.append(inner[0].removeprefix("its "))
        value = inner[1]
    kind = type(value)
    whole = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{', '.join(names)}, of type {whole}," if names else "it"


def _parts(value: object) -> Iterator[tuple[str, Any]]:
    """The parts that are pickled with a value, each with its name."""
    if isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, functools.partial):
        yield "its function", value.func
        yield from ((f"its argument {number}", each) for number, each in enumerate(value.args))
        yield from ((f"its argument {name!r}", each) for name, each in value.keywords.items())
    elif isinstance(value, MethodType):
        yield "its object", value.__self__
        yield "its function", value.__func__
    elif isinstance(value, dict):
        yield from ((f"its item {key!r}", each) for key, each in list(value.items()))
    elif isinstance(value, list | tuple):
        yield from ((f"its item {number}", each) for number, each in enumerate(value))
    elif not isinstance(value, ModuleType | type):
        yield from ((f"its attribute {name!r}", each) for name, each in getattr(value, "__dict__", {}).items())


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"its closure variable {name!r}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in dict.fromkeys(_names(function.__code__)):
        if name in function.__globals__:
            yield f"its global variable {name!r}", function.__globals__[name]
    yield from ((f"its default {number}", each) for number, each in enumerate(function.__defaults__ or ()))
    yield from ((f"its default {name!r}", each) for name, each in (function.__kwdefaults__ or {}).items())


def _names(code: CodeType) -> Iterator[str]:
    """The names that the code, and code inside it, looks up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
