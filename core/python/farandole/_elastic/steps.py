"""Divides the remaining samples of a pass into steps. Pure.

    left samples   [ whole steps: batch_size for each rank ][ short step ][ last step ][ common steps ]

- A whole step takes `batch_size` samples for each rank.
- The last step divides the rest evenly, with at least one sample for each rank.
- If less than one sample for each rank would be left, the step before is short: it takes one less for each rank.
- If that is impossible, because fewer samples than ranks are left or a batch has one sample, all take the same samples.

So no batch is empty, and all ranks have the same number of batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Steps:
    """The steps of a loop over the `left` samples of a pass that are not done yet."""

    left: int
    ranks: int
    batch_size: int
    drop_last: bool = False

    @cached_property
    def bounds(self) -> tuple[int, int, int, int]:
        """Return the numbers of samples done after the whole steps, the short, the last and the common steps."""
        whole = self.left // self._full * self._full
        rest = self.left - whole
        if self.drop_last:
            return whole, whole, whole, whole
        if not 0 < rest < self.ranks:
            return whole, whole, self.left, self.left
        if whole and self.batch_size > 1:
            return whole - self._full, whole - self.ranks, self.left, self.left
        return whole, whole, whole, self.left

    def __len__(self) -> int:
        whole, short, last, common = self.bounds
        return whole // self._full + (short > whole) + (last > short) + -(-(common - last) // self.batch_size)

    def end(self, number: int) -> int:
        """Return the number of samples that are done after step `number`."""
        whole, short, last, common = self.bounds
        number -= whole // self._full
        if number < 0:
            return whole + (number + 1) * self._full
        for begin, end in ((whole, short), (short, last)):
            if end > begin:
                if number == 0:
                    return end
                number -= 1
        return min(last + (number + 1) * self.batch_size, common)

    def is_common(self, number: int) -> bool:
        """Return whether all ranks take the same samples in this step."""
        return self.end(number) > self.bounds[2]

    def places(self, number: int, rank: int) -> range:
        """Return the samples of `rank` in this step, counted from the first remaining one."""
        begin = self.end(number - 1) if number else 0
        if self.is_common(number):
            return range(begin, self.end(number))
        return range(begin + rank, self.end(number), self.ranks)

    @property
    def _full(self) -> int:
        return self.ranks * self.batch_size
