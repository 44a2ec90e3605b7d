"""Makes a call that only this rank cannot make fail on the other ranks as well.

The ranks' calls are matched by name, or by order. A rank that raises before its call has come to the core, because of a
wrong argument say, would leave the others waiting, and its next unnamed call would meet their last one. So it tells the
core, which uses up its turn: the others' call fails, with the reason. This rank raises at once and waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from farandole._api.earlier import await_earlier
from farandole._runtime.call_sites import public_call
from farandole._runtime.native import core

_MOST_LETTERS = 500  # of a reason: an error's text may contain a whole tensor
_makes_graph: list[Callable[[], bool]] = []


def no_calls_while(makes_graph: Callable[[], bool]) -> None:
    """Register a framework's check for graph construction. An error during it belongs to no call and takes no turn."""
    _makes_graph.append(makes_graph)


def refuse(error: Exception, name: str | None, process_set: int) -> None:
    """Use up this rank's turn in the call that raises `error`; a second call does nothing.

    Args:
        error: a KeyboardInterrupt is none, since it ends the program and not the call.
        name: that of the call; none: the set's next unnamed one.
        process_set: the set's number.
    """
    if getattr(error, "others_know", False):
        return
    with suppress(Exception):  # `error` is what the caller has to see
        error.others_know = True  # type: ignore[attr-defined]
        if any(makes_graph() for makes_graph in _makes_graph):
            return
        if not name:
            await_earlier()
        why = f"{public_call()} raised {type(error).__name__}: {error}"
        why = why if len(why) <= _MOST_LETTERS else f"{why[:_MOST_LETTERS]}..."
        core.refuse(name or "", process_set, why.encode(errors="backslashreplace").decode())


class CallGuard:
    """A `with` block that prepares one call; an exception in the block refuses the call."""

    __slots__ = ("_name", "_process_set")

    def __init__(self, name: str | None, process_set: int) -> None:
        """Take the arguments of `refuse`."""
        self._name, self._process_set = name, process_set

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, Exception):
            refuse(error, self._name, self._process_set)
