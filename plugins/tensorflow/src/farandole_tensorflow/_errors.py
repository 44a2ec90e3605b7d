"""Errors of operations. TensorFlow raises its own classes for a failed operation:

    FailedPreconditionError   the ranks disagree (MismatchError), or there is no world (NotInitializedError)
    InvalidArgumentError      a call that cannot be (ArgumentError)
    UnavailableError          a rank is lost (PeerLostError)
    DeadlineExceededError     a rank did not come in time (DeadlineError)
    InternalError             everything else (FarandoleError)

Eager calls raise classes that are both; those of a graph are TensorFlow's alone, which there makes an InternalError of
UnavailableError, since that is for its own network. Their messages begin with words of TensorFlow's, and our sentence
is the line before the node; where nobody catches them, it is what is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import farandole
import tensorflow as tf
from farandole.plugin import Kind
from farandole.plugin.native import lost_rank, translate_errors

_FUNCTIONS = r"(?:\{\{function_node [^}]*\}\} ?)*"
_FRAME = re.compile(rf"^{_FUNCTIONS}|\s*\[Op:\w+\](?: name:.*)?$", re.DOTALL)
_KINDS = "|".join(kind.name.lower() for kind in Kind)
_IN_A_GRAPH = re.compile(
    rf"^(?: *\(\d+\) [\w ]+: +)?{_FUNCTIONS}(?P<sentence>.+)\n"
    rf"\t \[\[{_FUNCTIONS}\{{\{{node (?:\S+/)?(?:{_KINDS})(?:[._/]\S*)?\}}\}}\]\]",
    re.MULTILINE,
)


def _both(name: str, ours: type[BaseException], theirs: Any) -> Any:
    def init(self: Any, error: Any) -> None:
        theirs.__init__(self, error.node_def, error.op, _FRAME.sub("", error.message))

    body = {"__init__": init, "__module__": "farandole", "__doc__": ours.__doc__}
    return type(name, (ours, theirs), body)


_OURS: dict[Any, type[Exception]] = {
    tf.errors.InvalidArgumentError: farandole.ArgumentError,
    tf.errors.FailedPreconditionError: farandole.MismatchError,
    tf.errors.UnavailableError: farandole.PeerLostError,
    tf.errors.DeadlineExceededError: farandole.DeadlineError,
    tf.errors.InternalError: farandole.FarandoleError,
}
_WAS_LOST = "originally returned UnavailableError"  # which TensorFlow replaces
# Classes that TensorFlow makes of our error in what XLA compiles, in datasets and in threads of its own.
_OF_A_LOSS = (
    *(tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError),
    *(tf.errors.UnavailableError, tf.errors.UnknownError),
)
_BY_TENSORFLOWS = {theirs: _both(ours.__name__, ours, theirs) for theirs, ours in _OURS.items()}
# Messages of the core and csrc/call.cc without a world. TensorFlow has one class for that and for a mismatch.
_NO_WORLD = re.compile(
    r"(?:^|: )(?:farandole is not initialized|farandole_tensorflow was not imported"
    r"|this is a forked child of a rank|this rank called shutdown)\b"
)
_NOT_INITIALIZED = _both("NotInitializedError", farandole.NotInitializedError, tf.errors.FailedPreconditionError)


@contextmanager
def as_ours() -> Iterator[None]:
    """Turns an error of our eager operations within the block into a class that is farandole's, too."""
    try:
        yield
    except tf.errors.OpError as error:
        kind = _BY_TENSORFLOWS.get(type(error))
        if kind is None:
            raise
        if _lacks_a_world(error, _FRAME.sub("", error.message)):
            kind = _NOT_INITIALIZED
        ours = kind(error)
        ours.others_know = True  # the core has had the call
        raise ours from None


def in_a_graph(error: BaseException) -> BaseException | None:
    """Our error, with our sentence alone, where a graph raised `error` because an operation of ours failed in it."""
    if not isinstance(error, tf.errors.OpError):
        return None
    found = _IN_A_GRAPH.search(error.message)
    kind = _OURS.get(type(error))
    if found is None or kind is None:
        return None
    if kind is farandole.FarandoleError and _WAS_LOST in error.message:
        kind = farandole.PeerLostError
    if _lacks_a_world(error, found["sentence"]):
        kind = farandole.NotInitializedError
    return kind(found["sentence"])


def recoverable(error: Any) -> farandole.RecoverableError | None:
    """Our error, where TensorFlow raised `error` since a rank is lost or did not come in time."""
    if isinstance(error, farandole.RecoverableError):
        return error
    ours = in_a_graph(error)
    if isinstance(ours, farandole.RecoverableError):
        return ours
    lost = lost_rank() if ours is None and isinstance(error, _OF_A_LOSS) else None
    return farandole.PeerLostError(f"rank {lost[0]} is lost: {lost[1]}") if lost else None


def _lacks_a_world(error: Any, sentence: str) -> bool:
    """Return whether an operation failed for lack of a world; a later shutdown() must not change the answer."""
    return type(error) is tf.errors.FailedPreconditionError and _NO_WORLD.search(sentence) is not None


translate_errors(in_a_graph)
