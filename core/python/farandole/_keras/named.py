"""An object whose methods are functions of a plugin's module."""

from __future__ import annotations


class Named:
    """Pickled by its name in the module, as functions are."""

    def __init__(self, module: str, name: str) -> None:
        """It is the global variable `name` of `module`."""
        self.__module__, self._name = module, name

    def __reduce__(self) -> str:
        return self._name
