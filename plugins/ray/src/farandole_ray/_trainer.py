"""The program of a rank: makes the calls that the actor of its node passes on, one after the other.

    actor -> rank    a mark, a pickled call; the end of the stream is the end of the job
    rank -> actor    hello: its number; then for each call length, outcome

After a call the rank writes its mark to stdout and stderr, as the last of the call's output. A call that raises ends
the rank, so that the others do not wait for it in their next operation.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import Any

from farandole_ray import _log
from farandole_ray._environment import of_rank
from farandole_ray._wire import MARK_BYTES, NUMBER, receive, send

_objects: list[Any] = []  # of the executor's class


def make_object(kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A call: the object to which later calls are handed."""
    _objects[:] = [kind(*args, **kwargs)]


def with_object(fn: Any) -> Any:
    """A call: of a function of the object, or of None where the executor has no class."""
    return fn(_objects[0] if _objects else None)


def main() -> None:
    """Serve until the actor closes the stream. Exits with 1 after a call that raised."""
    from farandole.engine import outcome_of, tell_failure

    number, name, folder = of_rank()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as actor:
        os.set_inheritable(actor.fileno(), False)
        actor.connect(f"\0{name}")
        actor.sendall(NUMBER.pack(number))
        while (message := receive(actor)) is not None:
            mark, call = message[:MARK_BYTES], message[MARK_BYTES:]
            _log.begin(mark)
            outcome, error = outcome_of(call, number)
            _end_output(mark)
            send(actor, outcome)
            if error is not None:
                tell_failure(error)
                sys.exit(1)


def _end_output(mark: bytes) -> None:
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        with contextlib.suppress(OSError, ValueError):  # the call has closed it
            stream.flush()
            os.write(descriptor, mark + b"\n")
