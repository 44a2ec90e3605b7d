"""Finds links between hosts that carry less than they did before. Pure.

A link is not compared with others. If its receiver acknowledges late, up to 40 ms after a message, it seems to send for
longer than it does, and links of one job have different messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from farandole.observe.records import Link

Links = Mapping[tuple[int, int], Link]  # by the ranks that send and receive

_WINDOW_S = 2.0
_MOST_WINDOWS = 60  # to remember
_FEWEST_BYTES = 1 << 20  # in a window: with less, acknowledgements dominate the rate
_FEWEST_WINDOWS = 5  # to compare the last one with
_SLOW = 0.5  # of the usual rate
_WORTH = 0.1  # additional share of the time that is worth a report
_IN_A_ROW = 3  # looks that must agree


@dataclass(frozen=True)
class SlowLink:
    """A link, with its bytes per second while it sends, now and before."""

    sender: int
    receiver: int
    rate: float
    usual: float


@dataclass
class _History:
    """The counts of one link, with its rate, and its share of the time with data in flight, in each window."""

    times: list[float] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    window_from_s: float = 0.0

    def add(self, link: Link, now_s: float) -> None:
        if self.links and link.sent_bytes < self.links[-1].sent_bytes:  # a new connection
            self.times, self.links, self.rates, self.shares = [], [], [], []
        gone = max(0, bisect_right(self.times, now_s - 2 * _WINDOW_S) - 1)
        del self.times[:gone], self.links[:gone]
        self.times.append(now_s)
        self.links.append(link)

    def last(self) -> tuple[float, float] | None:
        """Return the rate and the share of the last window, or None."""
        now_s = self.times[-1]
        index = bisect_right(self.times, now_s - _WINDOW_S) - 1
        if index < 0:
            return None
        sent = self.links[-1].sent_bytes - self.links[index].sent_bytes
        sending_us = self.links[-1].sending_us - self.links[index].sending_us
        if sent < _FEWEST_BYTES or sending_us <= 0:
            return None
        return sent * 1e6 / sending_us, sending_us / 1e6 / (now_s - self.times[index])

    def keep(self, rate: float, share: float, now_s: float) -> None:
        """Remember a window."""
        if now_s - self.window_from_s >= _WINDOW_S:
            self.window_from_s = now_s
            self.rates = [*self.rates, rate][-_MOST_WINDOWS:]
            self.shares = [*self.shares, share][-_MOST_WINDOWS:]


class SlowLinks:
    """Remembers two minutes of all links."""

    def __init__(self) -> None:
        self._histories: dict[tuple[int, int], _History] = {}
        self._agreed: dict[tuple[int, int], int] = {}

    def find(self, links: Links, now_s: float) -> list[SlowLink]:
        """Take the present counts of all links. Returns the slow links, the slowest first."""
        self._histories = {pair: self._histories.get(pair, _History()) for pair in links}
        slow = []
        for pair, history in self._histories.items():
            history.add(links[pair], now_s)
            if (last := history.last()) is None:
                continue
            found = _evaluate(pair, *last, history)
            self._agreed[pair] = self._agreed.get(pair, 0) + 1 if found else 0
            if found and self._agreed[pair] >= _IN_A_ROW:
                slow.append(found)
            if not found:
                history.keep(*last, now_s)
        return sorted(slow, key=lambda each: each.rate)


def _evaluate(pair: tuple[int, int], rate: float, share: float, history: _History) -> SlowLink | None:
    """Return the link if it takes more of the time than before, and carries less meanwhile."""
    if len(history.rates) < _FEWEST_WINDOWS:
        return None
    usual = median(history.rates)
    if rate >= _SLOW * usual or share - median(history.shares) < _WORTH:
        return None
    return SlowLink(*pair, rate, usual)
