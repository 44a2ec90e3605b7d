"""Assigns rows to ranks, and orders them. Pure.

Invariants:

1. Every rank has the same number of rows in a pass, and so the same number of batches of the same sizes.
2. A pass has every row. If the rows do not divide evenly, the last ranks read some of the first rows again.
3. A seed gives the same order on every rank, so their shares are disjoint. Each pass has another order.
"""

from __future__ import annotations

import bisect
import itertools
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

    def windows(self, rows: int, order: Sequence[int] | None = None) -> Iterator[list[Piece]]:
        """The rows of this rank, so many at a time, and at last what is left; with the row groups in this order."""
        groups = [self.groups[each] for each in order] if order is not None else self.groups
        ends = list(itertools.accumulate(group.rows for group in groups))
        row, end = self.rank * self.rows, (self.rank + 1) * self.rows
        while row < end:
            window, stop = list[Piece](), min(row + rows, end)
            while row < stop:
                row_of_pass = row % ends[-1]
                place = bisect.bisect_right(ends, row_of_pass)
                left = min(ends[place] - row_of_pass, stop - row)
                start = row_of_pass - ends[place] + groups[place].rows
                window.append(Piece(groups[place], start, start + left))
                row += left
            yield window


def order_of(groups: int, seed: int, number: int) -> list[int]:
    """Return the shuffled order of the row groups in pass `number`."""
    return list(map(int, np.random.default_rng([seed, number]).permutation(groups)))
