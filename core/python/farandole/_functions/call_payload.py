"""The function and its arguments as bytes in memory that each rank reads.

A rank has the import path of the caller, so it finds modules beside the caller's script or notebook by themselves.
Modules that it would not find there travel by value, and so do those that are being imported at this moment: a rank
that imported such a module would come to the same call of `farandole.run`.

The lines of cells travel along: they are in no file, and a rank's traceback shows them.
"""

from __future__ import annotations

import importlib.machinery
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from farandole._api.errors import ArgumentTypeError
from farandole._functions import pickle_errors
from farandole._runtime import pickling
from farandole._runtime.call_sites import is_ours

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_Lines = dict[str, tuple[int, None, list[str], str]]  # entries of linecache.cache
_MOST_CHARACTERS = 1 << 20  # of lines that travel
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def write(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    executable: str | None = None,
    *,
    caller: str = "farandole.run",
    is_elsewhere: bool = False,
) -> int:
    """The descriptor of memory with the call. Raises ArgumentTypeError where a part of it cannot be pickled.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its keyword arguments.
        executable: the ranks' Python; another one has packages of its own, so it gets the script's folder alone.
        caller: the function that the user called, for messages.
        is_elsewhere: ranks may lack the caller's files, so all modules that are not installed travel by value.
    """
    path = [os.path.abspath(each) for each in sys.path]
    is_other = executable is not None and executable != sys.executable
    call = _dumps(fn, args, kwargs, caller, is_elsewhere)
    descriptor = os.memfd_create("farandole-call", os.MFD_CLOEXEC)
    os.fchmod(descriptor, 0o400)
    with open(descriptor, "wb", closefd=False) as memory:
        pickle.dump((path[:1] if is_other else path, is_other, sys.argv[:1]), memory)
        memory.write(call)
    return descriptor


def for_elsewhere(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], caller: str) -> bytes:
    """The pickled call alone, for ranks that lack the caller's files. Raises ArgumentTypeError like `write`."""
    return bytes(_dumps(fn, args, kwargs, caller, is_elsewhere=True))


def load(call: bytes) -> Call:
    """The function and its arguments of a pickled call. Tracebacks of this process then show the caller's cells."""
    fn, args, kwargs, lines = pickle.loads(call)
    linecache.cache.update(lines)
    return fn, args, kwargs


def read(path: str) -> tuple[list[str], bool, list[str], bytes]:
    """The caller's import path; whether this Python has packages of its own; the program's name; the pickled call."""
    with open(path, "rb") as memory:
        modules, is_other, argv = pickle.load(memory)
        return modules, is_other, argv, memory.read()


def _dumps(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], caller: str, is_elsewhere: bool
) -> memoryview:
    modules = [*_not_installed()] if is_elsewhere else [each for each in _own_modules() if not _can_be_imported(each)]
    if is_elsewhere and any(map(_is_of_package, modules)):
        try:
            with pickling.by_value(modules):
                return pickling.dumps((fn, args, kwargs, _lines_of_cells()))
        except Exception:  # a package may have what cannot travel, and then the ranks need it, too
            modules = [each for each in modules if not _is_of_package(each)]
    with pickling.by_value(modules):
        try:
            return pickling.dumps((fn, args, kwargs, _lines_of_cells()))
        except Exception as error:
            name = getattr(fn, "__name__", type(fn).__name__)
            culprit = pickle_errors.find(fn, args, kwargs, _travels)
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise ArgumentTypeError(
                f"{caller} cannot send {name!r} to the ranks: {culprit} cannot be pickled "
                f"({reason}); create it inside the function, or pass what it is made from."
            ) from error


def _is_of_package(module: ModuleType) -> bool:
    """Whether pip has put it into a folder that is no environment, by its option --target."""
    levels = module.__name__.count(".") + hasattr(module, "__path__")
    folder = Path(os.path.abspath(str(module.__file__))).parents[levels]
    return next(folder.glob("*.dist-info"), None) is not None


def _lines_of_cells() -> _Lines:
    """What linecache knows of code that is in no file, the latest first: cells of notebooks, lines of a prompt."""
    found: _Lines = {}
    left = _MOST_CHARACTERS
    for name, entry in reversed(list(linecache.cache.items())):
        if len(entry) == 4 and entry[1] is None and not name.startswith("<frozen"):
            left -= entry[0]
            if left < 0:
                break
            found[name] = entry  # type: ignore[assignment]
    return found


def _travels(value: object) -> bool:
    try:
        pickling.dumps(value)
    except Exception:
        return False
    return True


def _own_modules() -> Iterator[ModuleType]:
    """The loaded modules below the working directory or the script's folder, without installed ones."""
    folders = tuple({os.path.join(os.path.abspath(each), "") for each in (os.curdir, *sys.path[:1])})
    yield from (module for module, path in _modules_of_files() if path.startswith(folders))


def _not_installed() -> Iterator[ModuleType]:
    """The loaded modules with a file that is neither Python's nor of an installed package."""
    library = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")
    for module, path in _modules_of_files():
        if path.endswith(".py") and not path.startswith(library):
            yield module


def _modules_of_files() -> Iterator[tuple[ModuleType, str]]:
    """The loaded modules that no package manager has installed, and their paths; neither the program nor ours."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and isinstance(module, ModuleType) and module.__name__ == name:
            path = os.path.abspath(file)
            if not any(part in path for part in _INSTALLED) and name != "__main__" and not is_ours(name):
                yield module, path


def _can_be_imported(module: ModuleType) -> bool:
    if getattr(module.__spec__, "_initializing", False):
        return False
    parent, _, _ = module.__name__.rpartition(".")
    if parent and parent not in sys.modules:
        return False
    places = getattr(sys.modules[parent], "__path__", []) if parent else None
    found = importlib.machinery.PathFinder.find_spec(module.__name__, places)
    origin = None if found is None else found.origin
    return origin is not None and os.path.abspath(origin) == os.path.abspath(str(module.__file__))
