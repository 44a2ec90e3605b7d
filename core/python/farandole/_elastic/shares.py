"""How the bytes of a state are shared out: which rank sends which of them to whom, and when. Pure.

Holders have the state, each sends an even part of it, and takers lack it. A holder's part goes in pieces, one a round.
Each piece is cut evenly for the takers, and a taker passes on what it has got `LAG` rounds before to all others:

    round 0     holders: pieces 0 ->  takers (each a stripe of each piece)
    round LAG   holders: pieces LAG -> takers            takers: stripes of pieces 0 -> other takers

So a byte leaves the holders once, however many take it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

LAG = 2  # rounds that are under way at once
_ROUND_BYTES = 12 << 20  # of all holders together: less takes more waits, and more finds no warm memory
_LEAST_PIECE_BYTES = 64 << 10

Range = tuple[int, int]
"""Bytes of the state: the first one, and the one after the last."""


@dataclass(frozen=True)
class Plan:
    """Of one state. All ranks of the world are holders or takers."""

    size_bytes: int
    holders: tuple[int, ...]  # ranks, ascending
    takers: tuple[int, ...]  # likewise
    round_bytes: int = _ROUND_BYTES

    @property
    def rounds(self) -> int:
        """How many there are."""
        longest = max(end - begin for begin, end in map(self.part, range(len(self.holders))))
        pieces = -(-longest // self._piece_bytes) if self.takers else 0
        return pieces + LAG if pieces and len(self.takers) > 1 else pieces

    def part(self, holder: int) -> Range:
        """The bytes that the holder with this place among them sends."""
        count = len(self.holders)
        return self.size_bytes * holder // count, self.size_bytes * (holder + 1) // count

    def stripe(self, holder: int, taker: int, piece: int) -> Range:
        """The bytes from the holder to the taker with these places in this round; empty without a piece."""
        begin, end = self.part(holder)
        first = min(begin + max(piece, 0) * self._piece_bytes, end)
        size = min(self._piece_bytes, end - first) if piece >= 0 else 0
        count = len(self.takers)
        return first + size * taker // count, first + size * (taker + 1) // count

    def sent(self, rank: int, number: int) -> Iterator[tuple[int, list[Range]]]:
        """To whom this rank sends in a round, in the order of ranks, and which bytes."""
        if rank in self.holders:
            me = self.holders.index(rank)
            for place, taker in enumerate(self.takers):
                yield taker, [self.stripe(me, place, number)]
        else:
            passed_on = self._of_all(self.takers.index(rank), number - LAG)
            yield from ((taker, passed_on) for taker in self.takers if taker != rank)

    def received(self, rank: int, number: int) -> Iterator[tuple[Range, bool]]:
        """The bytes that a taker gets in a round, in the order of those that send it, and whether that is a holder."""
        me = self.takers.index(rank)
        for sender in sorted({*self.holders, *self.takers} - {rank}):
            if sender in self.holders:
                yield self.stripe(self.holders.index(sender), me, number), True
            else:
                yield from ((each, False) for each in self._of_all(self.takers.index(sender), number - LAG))

    def _of_all(self, taker: int, piece: int) -> list[Range]:
        return [self.stripe(holder, taker, piece) for holder in range(len(self.holders))]

    @property
    def _piece_bytes(self) -> int:
        return max(_LEAST_PIECE_BYTES, self.round_bytes // len(self.holders))


class Layout:
    """Arrays of these sizes one after the other, as one range of bytes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._begins = [0, *accumulate(sizes)]

    @property
    def size_bytes(self) -> int:
        """Of all together."""
        return self._begins[-1]

    def segments(self, begin: int, end: int) -> Iterator[tuple[int, Range]]:
        """The arrays in which these bytes lie, and where in them."""
        while begin < end:
            index = bisect_right(self._begins, begin) - 1
            start = self._begins[index]
            stop = min(end, self._begins[index + 1])
            yield index, (begin - start, stop - start)
            begin = stop
