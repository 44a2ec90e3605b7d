"""Makes a state equal on all ranks, for `ObjectState.sync`.

Holders are the ranks with the newest state, takers the others. Copies of holders may differ, for example in the
statistics of a layer, which each rank computes itself. So the holders first compare fingerprints:

    equal on all holders    each holder sends a share to the takers
    different               the lowest holder sends its own to all; also all arrays, if their descriptions differ
"""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farandole._api.errors import ArgumentTypeError
from farandole._api.objects import broadcast_object, pickled
from farandole._elastic.handlers import Array, Arrays, StateHandler
from farandole._elastic.streaming import content_of, stream_arrays, stream_bytes
from farandole._runtime import clock
from farandole._runtime.fingerprint import fingerprint
from farandole._start import world
from farandole._training.parameter_check import row_of, sums_by_rank

Handlers = Mapping[str, StateHandler]
_HEAD = struct.Struct("!Q")  # head of a copy: size of what precedes the arrays
_SMALL_BYTES = 64 << 10


@dataclass
class _Outlines:
    """The description of one rank's state that can be sent."""

    arrays: Sequence[Array]
    pickled: bytes
    problem: str = ""  # why it cannot be sent


def make_equal(
    handlers: Handlers,
    arrays: Arrays | None,
    holders: Sequence[int],
    refusal: Callable[[str, Exception], str],
    broadcast: Callable[..., Any] | None,
) -> bool:
    """Give all ranks the state of the holders; where the holders differ, that of the lowest one. Collective.

    Args:
        handlers: handlers of the state's attributes, which are the same on all ranks.
        arrays: access to the framework's arrays; None for a state without arrays.
        holders: ranks that have the newest state, in ascending order.
        refusal: function that makes the message about an attribute that cannot be pickled.
        broadcast: function that sends the outlines, instead of `broadcast_object`.

    Returns:
        Whether this rank's state was replaced by that of another rank.

    Raises:
        TypeError: an attribute of the lowest holder cannot be pickled; raised on all ranks.
    """
    me, root = world.rank(), holders[0]
    mine = _outlines(handlers, refusal) if me in holders else _Outlines([], b"")
    row = [bool(mine.problem), len(mine.pickled), zlib.crc32(mine.pickled)]
    if len(holders) > 1 and arrays is not None:
        row += [fingerprint(content_of(each, arrays)) for each in mine.arrays]
    reported = sums_by_rank(clock.allgather(row_of(row), "farandole.elastic.outlines"))
    has_problem, size_bytes, _ = reported[root][:3]
    if has_problem:
        raise ArgumentTypeError(broadcast_object(mine.problem, root, "farandole.elastic.problem"))
    have_equal_outlines = len({tuple(reported[rank][:3]) for rank in holders}) == 1
    if broadcast is not None:
        pickled = broadcast(mine.pickled if me == root else None, root_rank=root)
    else:
        senders = holders if have_equal_outlines else [root]
        pickled = stream_bytes(senders, _others(senders), size_bytes, mine.pickled)
    are_equal = len({tuple(reported[rank]) for rank in holders}) == 1
    takes = me != root and not (are_equal and me in holders)
    own = _receivers(handlers, pickle.loads(pickled)) if takes else mine.arrays
    if arrays is not None:
        differing = set(range(len(own)))
        if have_equal_outlines:
            sums = zip(*(reported[rank][3:] for rank in holders), strict=True)
            differing = {index for index, each in enumerate(sums) if len(set(each)) > 1}
        stream_arrays(holders, _others(holders), [each for i, each in enumerate(own) if i not in differing], arrays)
        if differing:
            arrays.broadcast([each for i, each in enumerate(own) if i in differing], root)
    if takes:
        for handler in handlers.values():
            handler.received()
    return takes


def _outlines(handlers: Handlers, refusal: Callable[[str, Exception], str]) -> _Outlines:
    outlines: dict[str, Any] = {}
    arrays: list[Array] = []
    for name, handler in handlers.items():
        outlines[name], some = handler.outline()
        arrays += some
    try:
        return _Outlines(arrays, bytes(pickled(outlines)))
    except Exception:
        for name, outline in outlines.items():
            try:
                pickled(outline)
            except Exception as error:
                return _Outlines(arrays, b"", refusal(name, error))
        raise


def _others(ranks: Sequence[int]) -> list[int]:
    return [rank for rank in range(world.size()) if rank not in ranks]


def _receivers(handlers: Handlers, outlines: Mapping[str, Any]) -> list[Array]:
    return [array for name, handler in handlers.items() for array in handler.receive(outlines[name])]


def pack(
    handlers: Handlers, arrays: Arrays | None, about: object, refusal: Callable[[str, Exception], str]
) -> list[Any]:
    """Return a copy of the state as pieces of bytes: what `unpack` needs, then `about`, then the content of the arrays.

    Raises TypeError if an attribute cannot be pickled.
    """
    mine = _outlines(handlers, refusal)
    if mine.problem:
        raise ArgumentTypeError(mine.problem)
    content = [] if arrays is None else [_copied(content_of(each, arrays)) for each in mine.arrays]
    head = pickled((about, mine.pickled, [len(each) for each in content]))
    return [_HEAD.pack(len(head)), head, *content]


def _copied(content: memoryview) -> Any:
    """Copy into new memory. numpy's memory has huge pages, so this is much faster than `bytes`."""
    if len(content) < _SMALL_BYTES:
        return bytes(content)
    try:
        import numpy as np
    except ImportError:
        return bytes(content)
    return np.frombuffer(content, np.uint8).copy().data


def about_in(content: memoryview) -> Any:
    """Return the `about` of a copy."""
    return _head_of(content)[0][0]


def unpack(content: memoryview, handlers: Handlers, arrays: Arrays | None) -> None:
    """Load a copy into the state."""
    (_, outlines, sizes), at = _head_of(content)
    for array, size in zip(_receivers(handlers, pickle.loads(outlines)), sizes, strict=True):
        assert arrays is not None
        own = arrays.memory(array)
        if own is None:
            arrays.fill(array, memoryview(bytearray(content[at : at + size])))
        else:
            own[:] = content[at : at + size]
        at += size
    for handler in handlers.values():
        handler.received()


def _head_of(content: memoryview) -> tuple[Any, int]:
    (size,) = _HEAD.unpack(content[: _HEAD.size])
    return pickle.loads(content[_HEAD.size : _HEAD.size + size]), _HEAD.size + size
