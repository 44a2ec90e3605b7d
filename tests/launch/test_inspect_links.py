"""Links between hosts that carry less than before. No processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from farandole.observe.records import Link
from farandole.observe.slow_links import SlowLink, SlowLinks
from farandole.observe.snapshot import Snapshot
from farandole.observe.step_times import StepTimes
from farandole.observe.watch import JobWatch

Pair = tuple[int, int]
MB = 1e6


class Network:
    """Links with a rate each, which send for so much of the time."""

    def __init__(self, pairs: list[Pair], rate: Callable[[Pair, float], float], share: float = 0.5) -> None:
        self.links = {pair: Link(pair[1], 0, 0, 0, 0, 100) for pair in pairs}
        self._rate, self._share, self.now_s = rate, share, 0.0

    def go_on(self, seconds: float = 0.5) -> None:
        self.now_s += seconds
        for pair, link in self.links.items():
            rate, before = self._rate(pair, self.now_s), self._rate(pair, 0.0)
            sending_s = seconds * min(1.0, self._share * before / rate)  # the same data take longer
            sent = round(rate * sending_s)
            self.links[pair] = Link(
                link.peer, link.sent_bytes + sent, 0, link.sending_us + round(sending_s * 1e6), 0, 100
            )

    def first_found(self, seconds: float) -> tuple[SlowLink, float] | None:
        watch = SlowLinks()
        while self.now_s < seconds:
            self.go_on()
            if found := watch.find(self.links, self.now_s):
                return found[0], self.now_s
        return None


RING = [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_a_link_that_becomes_slow_is_found_in_seconds() -> None:
    found = Network([(0, 1), (1, 0)], lambda pair, at_s: MB * (10 if at_s > 30 else 100)).first_found(60.0)
    assert found is not None
    link, at_s = found
    assert (link.sender, link.receiver) == (0, 1)
    assert link.usual == pytest.approx(100 * MB, rel=0.01)
    assert at_s - 30 < 4.0


def test_a_link_that_is_unlike_the_others_from_the_beginning_is_not_slow() -> None:
    """Its receiver may acknowledge later, or it carries other messages."""
    assert Network(RING, lambda pair, _: MB * (20 if pair == (2, 3) else 100)).first_found(60.0) is None


def test_links_that_are_all_alike_or_have_little_to_send_are_not_slow() -> None:
    assert Network(RING, lambda pair, at_s: MB * (100 + 30 * (at_s % 2))).first_found(120.0) is None
    assert Network(RING, lambda pair, _: MB * (1 if pair == (2, 3) else 100), share=0.05).first_found(60.0) is None
    assert Network([(0, 1)], lambda pair, at_s: MB * (1 if at_s > 30 else 100), share=0.0005).first_found(60.0) is None


def test_a_new_connection_has_no_past() -> None:
    watch, network = SlowLinks(), Network([(0, 1)], lambda pair, at_s: MB * (10 if at_s > 30 else 100))
    while network.now_s < 60.0:
        network.go_on()
        if network.now_s == 30.0:
            network.links[0, 1] = Link(1, 0, 0, 0, 0, 100)
        assert watch.find(network.links, network.now_s) == []


def test_the_sentence_names_ranks_hosts_and_rates() -> None:
    watch = JobWatch({0: "h0", 1: "h0", 2: "h1", 3: "h1"})
    network = Network(RING, lambda pair, at_s: MB * (12.5 if at_s > 30 and pair in ((1, 2), (3, 0)) else 118))
    said: list[str] = []
    while network.now_s < 60.0:
        network.go_on()
        said += watch.hear("", Snapshot({rank: StepTimes() for rank in range(4)}, network.links), network.now_s, 4)
    assert said == [
        "the network from rank 1 on h0 to rank 2 on h1 is slow: 12.5 MB/s while it sends, 118 MB/s before; 1 other "
        "links are slow, too"
    ]
