"""Changes that the import of a plugin makes in its framework: `python unchanged.py torch farandole_torch` prints it.

Compared is what the framework's modules have under public names, and the functions and values of their classes, the
special ones included. A module that is imported on the way is no change: a package gets its modules as attributes.
"""

import importlib
import subprocess
import sys
from types import ModuleType

_OWN = {"__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__firstlineno__", "__weakref__"}


def changed_by_import(framework: str, plugin: str) -> list[str]:
    """The names that the import changes, found out in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, framework, plugin]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _is_compared(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__") and name not in _OWN)


def _contents(framework: str) -> dict[str, dict[str, object]]:
    """Module or class -> what it has under names that are compared."""
    found: dict[str, dict[str, object]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != framework or not isinstance(module, ModuleType):
            continue
        found[name] = {key: value for key, value in list(vars(module).items()) if not key.startswith("_")}
        for value in found[name].values():
            if isinstance(value, type) and value.__module__.partition(".")[0] == framework:
                inside = {key: each for key, each in list(vars(value).items()) if _is_compared(key)}
                found[f"{value.__module__}.{value.__qualname__}"] = inside
    return found


def _main(framework: str, plugin: str) -> None:
    importlib.import_module(framework)
    before = _contents(framework)
    importlib.import_module(plugin)
    after = _contents(framework)
    for owner, contents in before.items():
        now = after.get(owner, {})
        for name in sorted({*contents, *now}):
            is_new_module = name not in contents and isinstance(now[name], ModuleType)
            if contents.get(name, _main) is not now.get(name, _main) and not is_new_module:
                print(f"{owner}.{name}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
