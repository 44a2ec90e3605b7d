"""Output of ranks that no launcher has shown yet, as an agent keeps it for the next launcher. Pure.

A launcher says how many frames of output it has shown. The next one gets the others when it dies, so a line may be
shown twice, and none is lost as long as the rank has not written more than the most that is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from farandole.launch.remote import frames

MOST_BYTES = 1 << 20  # of each rank
_PIECE_BYTES = 1 << 16


@dataclass(eq=False)
class _Piece:
    rank: int
    pipe: int
    data: bytearray
    sent: bool
    dropped_bytes: int = 0  # its data are gone


@dataclass
class Backlog:
    """The output of the ranks of one host. `most`: bytes of each rank that are kept, the last ones."""

    most: int = MOST_BYTES
    _kept: dict[int, deque[_Piece]] = field(default_factory=dict)
    _bytes: dict[int, int] = field(default_factory=dict)
    _sent: deque[_Piece] = field(default_factory=deque)  # not yet shown
    _tails: dict[tuple[int, int], bytes] = field(default_factory=dict)  # of each pipe: the begin of a line, shown
    _lost: dict[int, int] = field(default_factory=dict)  # bytes that no launcher has shown

    def add(self, rank: int, pipe: int, data: bytes, sent: bool) -> None:
        """A rank has written this. `sent`: it is on its way to the launcher as a frame of its own."""
        pieces = self._kept.setdefault(rank, deque())
        last = pieces[-1] if pieces else None
        if last is not None and not sent and not last.sent and last.pipe == pipe and len(last.data) < _PIECE_BYTES:
            last.data += data
        else:
            pieces.append(_Piece(rank, pipe, bytearray(data), sent))
            if sent:
                self._sent.append(pieces[-1])
        self._bytes[rank] = self._bytes.get(rank, 0) + len(data)
        while self._bytes[rank] > self.most and len(pieces) > 1:
            self._drop(pieces.popleft())

    def shown(self, count: int) -> None:
        """The launcher has shown so many more of the frames that were sent."""
        for _ in range(min(count, len(self._sent))):
            piece = self._sent.popleft()
            if piece.dropped_bytes:
                self._lost[piece.rank] -= piece.dropped_bytes
                continue
            self._kept[piece.rank].remove(piece)  # the oldest, or close to it
            self._bytes[piece.rank] -= len(piece.data)
            self._remember_tail(piece)

    def resend(self) -> Iterator[bytes]:
        """The frames for a new launcher; they count as sent."""
        self._sent.clear()
        for (rank, pipe), tail in self._tails.items():
            if tail and rank in self._kept and any(each.pipe == pipe for each in self._kept[rank]):
                self._put_before(rank, pipe, tail)
        self._tails.clear()
        for pieces in self._kept.values():
            for piece in pieces:
                piece.sent = True
                self._sent.append(piece)
                yield frames.output(piece.rank, piece.pipe, bytes(piece.data))

    def take_lost(self) -> list[tuple[int, int]]:
        """Ranks, and the bytes of each that were dropped before any launcher showed them. Call `resend` next."""
        lost, self._lost = [(rank, size) for rank, size in sorted(self._lost.items()) if size], {}
        return lost

    def _put_before(self, rank: int, pipe: int, tail: bytes) -> None:
        self._kept[rank].appendleft(_Piece(rank, pipe, bytearray(tail), True))
        self._bytes[rank] += len(tail)

    def _drop(self, piece: _Piece) -> None:
        self._bytes[piece.rank] -= len(piece.data)
        self._lost[piece.rank] = self._lost.get(piece.rank, 0) + len(piece.data)
        self._tails.pop((piece.rank, piece.pipe), None)
        piece.dropped_bytes = len(piece.data)
        piece.data.clear()

    def _remember_tail(self, piece: _Piece) -> None:
        _, newline, rest = bytes(piece.data).rpartition(b"\n")
        key = piece.rank, piece.pipe
        self._tails[key] = (rest if newline else self._tails.get(key, b"") + rest)[-_PIECE_BYTES:]
