"""Changes that imports of a plugin make in frameworks: `python unchanged.py torch,keras farandole_torch` prints them.

Compared is what the framework's modules have under public names, and the functions and values of their classes, the
special ones included. A module that is imported on the way is no change: a package gets its modules as attributes, in
place of the stand-ins by which it imports some of them late.
"""

import importlib
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType

_OWN = {"__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__", "__weakref__"}


def changed_by_import(frameworks: Sequence[str], modules: Sequence[str]) -> list[str]:
    """The names in the frameworks that importing the modules changes, found out in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, ",".join(frameworks), ",".join(modules)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _is_compared(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__") and name not in _OWN)


def _contents(frameworks: Sequence[str]) -> dict[str, dict[str, object]]:
    """Module or class -> what it has under names that are compared."""
    found: dict[str, dict[str, object]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in frameworks or not isinstance(module, ModuleType):
            continue
        found[name] = {key: value for key, value in list(vars(module).items()) if not key.startswith("_")}
        for value in found[name].values():
            if isinstance(value, type) and value.__module__.partition(".")[0] in frameworks:
                inside = {key: each for key, each in list(vars(value).items()) if _is_compared(key)}
                found[f"{value.__module__}.{value.__qualname__}"] = inside
    return found


def _lacks_module(contents: dict[str, object], name: str) -> bool:
    """Returns whether nothing has the name, or what stands in for a module until it is used: of a class of its own."""
    return name not in contents or (isinstance(contents[name], ModuleType) and type(contents[name]) is not ModuleType)


def _main(frameworks: Sequence[str], modules: Sequence[str]) -> None:
    for module in frameworks:
        importlib.import_module(module)
    before = _contents(frameworks)
    for module in modules:
        importlib.import_module(module)
    after = _contents(frameworks)
    for owner, contents in before.items():
        now = after.get(owner, {})
        for name in sorted({*contents, *now}):
            is_new_module = _lacks_module(contents, name) and isinstance(now.get(name), ModuleType)
            if contents.get(name, _main) is not now.get(name, _main) and not is_new_module:
                print(f"{owner}.{name}")


if __name__ == "__main__":
    _main(*(names.split(",") for names in sys.argv[1:]))
