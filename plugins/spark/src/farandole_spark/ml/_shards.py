"""Assigns rows to ranks, and orders them. Pure.

Invariants:

1. Every rank has the same number of rows in a pass, and so the same number of batches of the same sizes.
2. A pass has every row. If the rows do not divide evenly, the last ranks read some of the first rows again.
3. A seed gives the same order on every rank, so their shares are disjoint. Each pass has another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RowGroup:
    """A row group of a Parquet file, which can be read alone. `size` is the uncompressed bytes of what is read."""

    file: str
    index: int
    rows: int
    size: int = 0


@dataclass(frozen=True)
class Piece:
    """The rows `start` to `stop` of a row group."""

    group: RowGroup
    start: int
    stop: int


@dataclass(frozen=True)
class Share:
    """The share of a data set that a rank reads."""

    groups: tuple[RowGroup, ...]
    rank: int
    size: int

    @property
    def rows(self) -> int:
        """The number of rows of each rank in a pass."""
        return -(-sum(group.rows for group in self.groups) // self.size)

    def batches(self, batch_size: int) -> int:
        """Return the number of batches of each rank in a pass. The last batch may be smaller."""
        return -(-self.rows // batch_size)

    def pieces(self, order: Sequence[int] | None = None) -> list[Piece]:
        """Return the rows of this rank, with the row groups in the given order."""
        groups = [self.groups[each] for each in order] if order is not None else list(self.groups)
        return _between(groups, self.rank * self.rows, (self.rank + 1) * self.rows)


def order_of(groups: int, seed: int, number: int) -> list[int]:
    """Return the shuffled order of the row groups in pass `number`."""
    return list(map(int, np.random.default_rng([seed, number]).permutation(groups)))


def windows_of(pieces: Sequence[Piece], rows: int) -> Iterator[list[Piece]]:
    """Split the pieces into lists of `rows` rows each. The last one may be smaller."""
    window: list[Piece] = []
    room = rows
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            stop = min(piece.stop, start + room)
            window.append(Piece(piece.group, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield window
                window, room = [], rows
    if window:
        yield window


def _between(groups: Sequence[RowGroup], start: int, stop: int) -> list[Piece]:
    """Return rows `start` to `stop` of the endlessly repeated groups."""
    total = sum(group.rows for group in groups)
    pieces: list[Piece] = []
    while start < stop:
        first = start // total * total  # row 0 of this repetition
        for group in groups:
            low, high = max(start, first), min(stop, first + group.rows)
            if low < high:
                pieces.append(Piece(group, low - first, high - first))
                start = high
            first += group.rows
    return pieces
