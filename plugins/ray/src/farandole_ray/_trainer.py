"""The functions that ranks call for the executor.

    actor -> rank    "call": its mark, the size of the pickled call, which follows; the stream ends with the job
    rank -> actor    "rank": its number; then for each call "outcome": the size of the outcome, which follows

After a call the rank writes its mark to stdout and stderr, as the last of the call's output. A call that raises ends
the rank, so that the others do not wait for it in their next operation.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import Any

from farandole.engine import hear, hear_bytes, outcome_of, say, unpack_call

from farandole_ray import _log
from farandole_ray._environment import of_rank

_objects: list[Any] = []  # of the executor's class


def make_object(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call: the object to which later calls are handed."""
    _objects[:] = [kind(*args, **kwargs)]


def with_object(fn: Any) -> Any:
    """A call: of a function of the object, or of None where the executor has no class."""
    return fn(_objects[0] if _objects else None)


def make_call(call: bytes, mark: str) -> Any:
    """The only call of a rank of an elastic job."""
    fn, args, kwargs = unpack_call(call)
    _log.begin(mark)
    return fn(*args, **kwargs)


def serve_calls() -> None:
    """Make the calls that the actor of this node passes on, until it closes the stream. Raises what a call raises."""
    (number, name), pid = of_rank(), os.getpid()
    with socket.socket(socket.AF_UNIX) as actor:
        actor.connect(f"\0{name}")
        say(actor, "rank", number=number)
        while (asked := _next(actor)) is not None:
            call, mark = asked
            _log.begin(mark)
            outcome, error = outcome_of(call, number)
            if os.getpid() == pid:
                _end_output(mark)
                say(actor, "outcome", size=len(outcome))
                actor.sendall(outcome)
            if error is not None:
                raise error
            if os.getpid() != pid:  # a child that the call has forked
                return


def _next(actor: socket.socket) -> tuple[bytes, str] | None:
    """The next call and its mark; None at the end of the stream, and when a rank is interrupted that has none."""
    try:
        asked = hear(actor)
        return bytes(hear_bytes(actor, asked["size"])), str(asked["mark"])
    except (ConnectionError, KeyboardInterrupt):
        return None


def _end_output(mark: str) -> None:
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        with contextlib.suppress(OSError, ValueError):  # the call has closed it
            if stream is not None:  # the call may have set it so
                stream.flush()
            os.write(descriptor, f"{mark}\n".encode())
