"""The pipe on which a launcher passes on what the ranks of `farandole.run` leave for its caller.

    launcher -> caller    pieces: the rank, the number of bytes, the bytes; those of several ranks mix
    rank -> launcher      a head with two lengths, then the two parts; one that dies meanwhile leaves less

Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_PIECE = struct.Struct("!II")
_HEAD = struct.Struct("!QQ")


def piece(rank: int, data: bytes) -> bytes:
    """Some of what a rank has left, for the caller."""
    return _PIECE.pack(rank, len(data)) + data


class PieceReader:
    """Bytes in, (rank, data) out."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The pieces that `data` completes."""
        self._bytes += data
        while len(self._bytes) >= _PIECE.size:
            rank, size = _PIECE.unpack_from(self._bytes)
            if len(self._bytes) < _PIECE.size + size:
                return
            yield rank, bytes(self._bytes[_PIECE.size : _PIECE.size + size])
            del self._bytes[: _PIECE.size + size]


def head(first_bytes: int, second_bytes: int) -> bytes:
    """The bytes with which a rank begins; then it writes both parts."""
    return _HEAD.pack(first_bytes, second_bytes)


def parts(data: bytearray) -> tuple[bytes, memoryview] | None:
    """Both parts of what a rank has left; None where it is not all there."""
    if len(data) < _HEAD.size:
        return None
    first, second = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + first + second:
        return None
    view = memoryview(data)[_HEAD.size :]
    return bytes(view[:first]), view[first:]
