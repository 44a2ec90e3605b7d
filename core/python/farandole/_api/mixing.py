"""Gives an object of the user's, such as an optimizer, members of ours without making another object of it."""

from __future__ import annotations

from typing import Any


def subclass_with(additions: type, plain: type, module: str = "") -> type:
    """Returns a subclass of `plain` with the members of `additions` in front.

    It has the name, the documentation and the module of `plain`, so that messages, pickles and saved configurations
    name the user's class. `module`: the module that it names instead.
    """
    body = {"__module__": module or plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    made: type = type(plain)(plain.__name__, (additions, plain), body)
    return made


def extend(thing: Any, additions: type) -> None:
    """Make `thing` an instance of `subclass_with(additions, type(thing))`; it remains the same object."""
    thing.__class__ = subclass_with(additions, type(thing))
