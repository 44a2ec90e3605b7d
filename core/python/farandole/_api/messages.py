"""Messages between two ranks; no other rank takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole._api.process_sets import ProcessSet, usable_id
from farandole._runtime.native import core

if TYPE_CHECKING:
    from farandole._core import Transfer


def send_async(
    tensor: Any, target_rank: int, tag: int = 0, process_set: ProcessSet | None = None, *, owner: Any = None
) -> Transfer:
    """Begin to send a tensor to a rank.

    The target receives the messages of this rank with one tag and process set in the order in which they are sent. A
    small message may be done before the target has called `recv_async`.

    Args:
        tensor: an array or a tensor in contiguous memory of the host, which must not change until the handle is done;
            or its `farandole._core.Tensor`.
        target_rank: its rank in the world; it may be this one.
        tag: tells messages apart.
        process_set: both ranks are in it. Messages of different sets never meet.
        owner: the object whose memory a `farandole._core.Tensor` describes; it is kept alive until the message is done.

    Returns:
        A handle. Its `wait(timeout)` raises DeadlineError after so many seconds and gives the message up.

    Raises:
        ValueError: there is no such rank in the process set.
    """
    return core.send(tensor, target_rank, tag, usable_id(process_set), owner)


def recv_async(
    tensor: Any,
    source_rank: int | None = None,
    tag: int = 0,
    process_set: ProcessSet | None = None,
    *,
    owner: Any = None,
) -> Transfer:
    """Begin to receive a tensor of the same element type and size; see `send_async`.

    Args:
        tensor: must not be used until the handle is done.
        source_rank: the sender's rank in the world; default: whoever's message comes first.
        tag: that of the message.
        process_set: that of the message.
        owner: see `send_async`.

    Returns:
        A handle. Once it is done, `source` is the sender's rank. Its `wait` raises MismatchError where the message has
        another size or element type.
    """
    return core.receive(tensor, source_rank, tag, usable_id(process_set), owner)
