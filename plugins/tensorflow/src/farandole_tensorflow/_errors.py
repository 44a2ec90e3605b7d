"""Errors of operations. TensorFlow raises its own classes for a failed operation:

    FailedPreconditionError   the ranks disagree (MismatchError), or there is no world (NotInitializedError)
    InvalidArgumentError      a call that cannot be (ValueError)
    UnavailableError          a rank is lost (PeerLostError)
    DeadlineExceededError     a rank did not come in time (DeadlineError)
    InternalError             everything else (FarandoleError)

Eager calls raise classes that are both; those of a graph are TensorFlow's alone, which there makes an InternalError of
UnavailableError, since that is for its own network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import farandole
import tensorflow as tf

_FRAME = re.compile(r"^(?:\{\{function_node [^}]*\}\} ?)+|\s*\[Op:\w+\](?: name:.*)?$", re.DOTALL)


def _both(name: str, ours: type[BaseException], theirs: Any) -> Any:
    def init(self: Any, error: Any) -> None:
        theirs.__init__(self, error.node_def, error.op, _FRAME.sub("", error.message))

    body = {"__init__": init, "__module__": "farandole", "__doc__": ours.__doc__}
    return type(name, (ours, theirs), body)


_BY_TENSORFLOWS = {
    theirs: _both(name, ours, theirs)
    for name, ours, theirs in (
        ("InvalidError", ValueError, tf.errors.InvalidArgumentError),
        ("MismatchError", farandole.MismatchError, tf.errors.FailedPreconditionError),
        ("PeerLostError", farandole.PeerLostError, tf.errors.UnavailableError),
        ("DeadlineError", farandole.DeadlineError, tf.errors.DeadlineExceededError),
        ("FarandoleError", farandole.FarandoleError, tf.errors.InternalError),
    )
}
_NOT_INITIALIZED = _both("NotInitializedError", farandole.NotInitializedError, tf.errors.FailedPreconditionError)


@contextmanager
def as_ours() -> Iterator[None]:
    """What an eager operation of ours raises within the block becomes the class of farandole, too."""
    try:
        yield
    except tf.errors.OpError as error:
        kind = _BY_TENSORFLOWS.get(type(error))
        if kind is None:
            raise
        if type(error) is tf.errors.FailedPreconditionError and not farandole.is_initialized():
            kind = _NOT_INITIALIZED
        raise kind(error) from None
