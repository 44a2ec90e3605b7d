"""How a state is shared out to ranks that lack it: every byte comes to every taker, and leaves the holders once."""

import numpy as np
import pytest
from farandole import testing
from farandole._elastic.streaming import Layout
from farandole._runtime.fingerprint import fingerprint


def streamed(holders, takers, size):
    """What this rank has afterwards, and how many bytes it sent in each alltoall."""
    import farandole
    from farandole._elastic import streaming

    def counted(name, given):
        sent.append((name.rpartition("elastic.")[2], sum(len(some) for each in given.values() for some in each)))
        return alltoall(name, given)

    alltoall, piece_bytes, sent = streaming._alltoall, streaming._PIECE_BYTES, []
    streaming._alltoall, streaming._PIECE_BYTES = counted, 97
    try:
        content = bytes(i % 251 for i in range(size)) if farandole.rank() in holders else b"of another state"
        return streaming.stream_bytes(holders, takers, size, content), sent
    finally:
        streaming._alltoall, streaming._PIECE_BYTES = alltoall, piece_bytes


@pytest.mark.parametrize("size", [0, 1, 7, 1000, 10_001])
@pytest.mark.parametrize(("holders", "takers"), [((0, 1, 2), (3,)), ((0,), (1,)), ((1, 3), (0, 2)), ((2,), (0, 1, 3))])
def test_every_byte_comes_to_every_taker_and_leaves_the_holders_once(holders, takers, size):
    ranks = testing.world(len(holders) + len(takers)).run(streamed, holders, takers, size)
    expected = bytes(i % 251 for i in range(size))
    assert all(content == expected for content, _ in ranks)
    pieces = -(-size // 97)
    shares = [sum(count for name, count in ranks[rank][1] if name.startswith("stream")) for rank in holders]
    assert sum(shares) == size  # once, however many take it
    assert max(shares) - min(shares) <= pieces * len(takers)  # bytes that a stripe cannot be divided by
    for rank, (_, sent) in enumerate(ranks):
        passed = [count for name, count in sent if name == "passed"]
        assert len(passed) == (pieces if len(takers) > 1 else 0)
        assert not sum(passed) or rank in takers


def test_nothing_is_sent_where_nobody_lacks_it():
    assert testing.world(2).run(streamed, (0, 1), (), 1000) == [(bytes(i % 251 for i in range(1000)), [])] * 2


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
