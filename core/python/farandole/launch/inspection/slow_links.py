"""The links between hosts that carry less than the others, or than they did before. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from farandole.launch.inspection.records import Link

Links = Mapping[tuple[int, int], Link]  # by the ranks that send and receive

_WINDOW_S = 2.0
_REMEMBERED_S = 120.0
_FEWEST_BYTES = 1 << 20  # in a window: little data tell of acknowledgements, not of a rate
_FEWEST_WINDOWS = 5  # before the last one, to compare with
_SLOW = 0.5  # of what is usual
_WORTH = 0.1  # of the time that is lost
_IN_A_ROW = 3  # looks that must agree


@dataclass(frozen=True)
class SlowLink:
    """A link, its bytes a second while it sends, and what is usual. `is_new`: it was faster before."""

    sender: int
    receiver: int
    rate: float
    usual: float
    is_new: bool


@dataclass
class _History:
    """The counts of one link, and its rate in each window so far."""

    times: list[float] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    window_from_s: float = 0.0

    def add(self, link: Link, now_s: float) -> None:
        if self.links and link.sent_bytes < self.links[-1].sent_bytes:  # a new connection
            self.times, self.links, self.rates = [], [], []
        gone = max(0, bisect_right(self.times, now_s - 2 * _WINDOW_S) - 1)
        del self.times[:gone], self.links[:gone]
        self.times.append(now_s)
        self.links.append(link)

    def last(self) -> tuple[float, float] | None:
        """Of the last window: the rate, and the share of the time with data on their way."""
        now_s = self.times[-1]
        place = bisect_right(self.times, now_s - _WINDOW_S) - 1
        if place < 0:
            return None
        sent = self.links[-1].sent_bytes - self.links[place].sent_bytes
        sending_us = self.links[-1].sending_us - self.links[place].sending_us
        if sent < _FEWEST_BYTES or sending_us <= 0:
            return None
        return sent * 1e6 / sending_us, sending_us / 1e6 / (now_s - self.times[place])

    def keep(self, rate: float, now_s: float) -> None:
        """Remember the rate of a window, one after the other."""
        if now_s - self.window_from_s >= _WINDOW_S:
            self.window_from_s = now_s
            self.rates = [*self.rates, rate][-round(_REMEMBERED_S / _WINDOW_S) :]


class SlowLinks:
    """Remembers two minutes of all links."""

    def __init__(self) -> None:
        self._histories: dict[tuple[int, int], _History] = {}
        self._agreed: dict[tuple[int, int], int] = {}

    def find(self, links: Links, now_s: float) -> list[SlowLink]:
        """Take the counts of all links as they are now. Returns those that are slow, the slowest first."""
        self._histories = {pair: self._histories.get(pair, _History()) for pair in links}
        last = {}
        for pair, history in self._histories.items():
            history.add(links[pair], now_s)
            if (found := history.last()) is not None:
                last[pair] = found
        slow = []
        for pair, (rate, share) in last.items():
            found_slow = self._judge(pair, rate, share, [other for at, (other, _) in last.items() if at != pair])
            self._agreed[pair] = self._agreed.get(pair, 0) + 1 if found_slow else 0
            if found_slow and self._agreed[pair] >= _IN_A_ROW:
                slow.append(found_slow)
            if not found_slow:
                self._histories[pair].keep(rate, now_s)
        return sorted(slow, key=lambda each: each.rate)

    def _judge(self, pair: tuple[int, int], rate: float, share: float, others: Sequence[float]) -> SlowLink | None:
        before = self._histories[pair].rates
        own = median(before) if len(before) >= _FEWEST_WINDOWS else 0.0
        theirs = median(others) if len(others) >= 2 else 0.0
        usual = max(own, theirs)
        if rate >= _SLOW * usual or share * (1 - rate / usual) < _WORTH:
            return None
        return SlowLink(*pair, rate, usual, own >= theirs)
