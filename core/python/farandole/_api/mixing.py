"""Adds methods to an existing object of the user, such as an optimizer."""

from __future__ import annotations

from typing import Any


def extend(thing: Any, additions: type, module: str = "") -> type:
    """Make `thing` an instance of a subclass of its class with the members of `additions` in front, and return that.

    It remains the same object. There is one such class for each class. It has the name, the documentation and the
    module of the user's class, so that messages, pickles and saved configurations name that.

    Args:
        thing: the object to extend.
        additions: a class without a constructor.
        module: the module that the class names instead of the user's.
    """
    plain: Any = type(thing)
    # The class made before, if something still uses it: a class refers to its subclasses weakly.
    known = (each for each in type.__subclasses__(plain) if each.__bases__ == (additions, plain))
    made: type | None = next(known, None)
    if made is None:
        body = {"__module__": module or plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
        made = type(plain)(plain.__name__, (additions, plain), body)
    object.__setattr__(thing, "__class__", made)  # past a `__setattr__` of the user's class
    return made
