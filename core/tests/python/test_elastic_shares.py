"""How a state is shared out to ranks that lack it, without processes: every byte comes to every taker, once."""

import numpy as np
import pytest
from farandole._elastic.shares import LAG, Layout, Plan
from farandole._runtime.fingerprint import fingerprint


class Carried:
    """A plan, carried out round by round as an alltoall would, on arrays of the state's bytes."""

    def __init__(self, plan):
        self.plan = plan
        state = np.arange(plan.size_bytes) % 251
        self.have = {rank: state.copy() for rank in plan.holders}
        self.have |= {rank: np.full(plan.size_bytes, -1) for rank in plan.takers}
        self.writes = {rank: np.zeros(plan.size_bytes, int) for rank in plan.takers}
        self.sent = dict.fromkeys(self.have, 0)
        for number in range(plan.rounds):
            self.carry(number)

    def carry(self, number):
        rows = {rank: dict(self.plan.sent(rank, number)) for rank in self.have}
        content = {
            (rank, to): np.concatenate([self.have[rank][begin:end] for begin, end in ranges])
            for rank, given in rows.items()
            for to, ranges in given.items()
        }
        for taker in self.plan.takers:
            came = np.concatenate([content[rank, taker] for rank in sorted(self.have) if (rank, taker) in content])
            at = 0
            for (begin, end), _ in self.plan.received(taker, number):
                self.have[taker][begin:end] = came[at : at + end - begin]
                self.writes[taker][begin:end] += 1
                at += end - begin
            assert at == len(came)
        for (rank, _), some in content.items():
            self.sent[rank] += len(some)


@pytest.mark.parametrize("size", [0, 1, 7, 1000, 10_001])
@pytest.mark.parametrize(
    ("holders", "takers"),
    [((0, 1, 2), (3,)), ((0,), (1,)), ((1, 3), (0, 2)), ((0, 2, 3), (1, 4, 5, 6)), ((2,), (0, 1, 3)), ((4, 5), (0,))],
)
def test_every_byte_comes_to_every_taker_once(monkeypatch, holders, takers, size):
    monkeypatch.setattr("farandole._elastic.shares._LEAST_PIECE_BYTES", 1)
    carried = Carried(Plan(size, holders, takers, round_bytes=97))
    expected = np.arange(size) % 251
    for taker in takers:
        assert np.array_equal(carried.have[taker], expected)
        assert (carried.writes[taker] == 1).all()
    shares = [carried.sent[rank] for rank in holders]
    assert sum(shares) == size  # once, however many take it
    assert max(shares) - min(shares) <= 1


def test_nothing_is_sent_where_nobody_lacks_it():
    assert Plan(1000, (0, 1, 2), ()).rounds == 0


def test_a_round_has_pieces_of_all_holders():
    plan = Plan(100 << 20, (0, 1, 2, 3), (4,))
    assert plan.rounds == -(-100 // 12)
    assert Plan(100 << 20, (0,), (1, 2)).rounds == -(-100 // 12) + LAG


def test_many_holders_send_no_crumbs():
    assert Plan(1 << 20, tuple(range(1000)), (1000,)).rounds == 1


def test_bytes_lie_in_arrays():
    layout = Layout([4, 0, 3, 5])
    assert layout.size_bytes == 12
    assert list(layout.segments(2, 9)) == [(0, (2, 4)), (2, (0, 3)), (3, (0, 2))]
    assert list(layout.segments(4, 7)) == [(2, (0, 3))]
    assert list(layout.segments(5, 5)) == []


class TestFingerprints:
    @pytest.fixture(params=[100, 300_000], ids=["small", "large"])
    def words(self, request):
        return np.random.default_rng(1).permutation(request.param).astype(np.int64)

    def of(self, words):
        return fingerprint(memoryview(words).cast("B"))

    def test_equal_bytes_have_equal_ones(self, words):
        assert self.of(words) == self.of(words.copy())

    @pytest.mark.parametrize("place", [0, 50, -1])
    def test_one_other_bit_is_seen(self, words, place):
        other = words.copy()
        other[place] ^= 1
        assert self.of(words) != self.of(other)

    def test_another_order_is_seen(self, words):
        swapped, moved = words.copy(), np.roll(words, 512)
        swapped[[3, 4]] = swapped[[4, 3]]
        assert len({self.of(words), self.of(swapped), self.of(moved)}) == 3
