"""Waits for calls that were made but have not begun: a framework that runs operations itself may begin them later.

Calls without a name are paired by the program's order, whatever the framework. So a caller that begins one waits
first until all calls before it have begun.
"""

from __future__ import annotations

from collections.abc import Callable

waits: list[Callable[[], None]] = []


def before_unnamed(wait: Callable[[], None]) -> None:
    """Call `wait` before each operation without a name, in any framework, begins.

    For a plugin whose framework begins operations later than the program calls them: `wait` returns once all of them
    have been begun. The plugin's own are not concerned where its native part begins them.
    """
    waits.append(wait)


def await_earlier() -> None:
    """Wait as `before_unnamed` says; for code that begins an unnamed operation without `Collectives`."""
    for wait in waits:
        wait()
