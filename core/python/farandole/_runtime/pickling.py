"""Objects and functions as bytes, for other processes of the same program.

cloudpickle sends a function of a script or a test by value. From 3.1.3 it replaces the name of the function's file by
"<dynamic-code>"; here the code keeps it, since tracebacks and our messages about call sites name the file.

Imported at the first use: cloudpickle takes longer to import than all of farandole.
"""

from __future__ import annotations

import pickle
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import cloudpickle

_reduced_by_cloudpickle = cloudpickle.Pickler.dispatch_table[types.CodeType]
_reduced_module = cloudpickle.Pickler.dispatch_table[types.ModuleType]
_registering = threading.RLock()


def dumps(obj: object) -> memoryview:
    """`obj`, pickled; functions and classes that the reader cannot import travel by value, with their files' names.

    `pickle.loads` reads it, in a process that can import farandole.
    """
    stream = BytesIO()
    _Pickler(stream).dump(obj)
    return stream.getbuffer()


def dumps_error(error: BaseException) -> bytes:
    """The pickled exception; b"" where reading it fails, as with a class whose __init__ has other arguments."""
    try:
        payload = bytes(dumps(error))
        return payload if isinstance(pickle.loads(payload), type(error)) else b""
    except Exception:
        return b""


@contextmanager
def by_value(modules: Iterable[types.ModuleType]) -> Iterator[None]:
    """Within the block, functions and classes of these modules travel by value, too.

    One thread at a time, as the list of modules is cloudpickle's, and the process's.
    """
    with _registering:
        before = cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in before]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _reduced(code: types.CodeType) -> tuple[Callable[..., types.CodeType], tuple[Any, ...]]:
    make, arguments = _reduced_by_cloudpickle(code)
    return _code_of_file, (code.co_filename, make, arguments)


def _code_of_file(file: str, make: Callable[..., types.CodeType], arguments: tuple[Any, ...]) -> types.CodeType:
    return make(*arguments).replace(co_filename=file)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({types.CodeType: _reduced})

    def reducer_override(self, obj: Any) -> Any:
        """As cloudpickle does; modules of a class of their own, such as torch.ops, as the others."""
        is_special = isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType
        return _reduced_module(obj) if is_special else super().reducer_override(obj)
