"""Batches that are shared out to changing ranks: each sample in one step, as many steps on all ranks, none empty."""

from __future__ import annotations

import itertools
import os
from collections import Counter

import pytest
from batches_simulation import History, Place, Violation
from farandole import ArgumentError, ArgumentTypeError
from farandole._elastic import batches as module
from farandole._elastic.steps import Steps
from farandole.elastic import Batches, ElasticSampler, ObjectState

LONG = bool(os.environ.get("FARANDOLE_LONG"))
pytestmark = pytest.mark.timeout(1200 if LONG else 60)


@pytest.fixture
def place(monkeypatch):
    made = Place()
    monkeypatch.setattr(module, "world", made)
    return made


# ---- The steps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7])
def test_steps_take_each_sample_once_and_leave_no_rank_without(batch_size):
    for left, ranks in itertools.product(range(60), range(1, 9)):
        steps = Steps(left, ranks, batch_size)
        done, taken = 0, []
        for number in range(len(steps)):
            shares = [list(steps.places(number, rank)) for rank in range(ranks)]
            sizes = [len(share) for share in shares]
            assert 0 < min(sizes) <= max(sizes) <= min(batch_size, min(sizes) + 1)
            if steps.is_common(number):
                assert left - done < ranks
                assert all(share == shares[0] for share in shares)
                shares = shares[:1]
            taken += sorted(place for share in shares for place in share)
            done = len(taken)
            assert steps.end(number) == done
        assert taken == list(range(left))
        if batch_size > 1 and left >= ranks:
            assert not any(steps.is_common(number) for number in range(len(steps)))


def test_all_steps_but_the_last_two_are_whole():
    assert [Steps(41, 4, 5).end(number) for number in range(len(Steps(41, 4, 5)))] == [20, 36, 41]
    assert [len(Steps(41, 4, 5).places(1, rank)) for rank in range(4)] == [4, 4, 4, 4]
    assert [len(Steps(41, 4, 5).places(2, rank)) for rank in range(4)] == [2, 1, 1, 1]
    assert [len(Steps(46, 4, 5).places(2, rank)) for rank in range(4)] == [2, 2, 1, 1]


def test_the_rest_can_be_left_out():
    for left, ranks, batch_size in itertools.product(range(40), range(1, 5), range(1, 5)):
        steps = Steps(left, ranks, batch_size, drop_last=True)
        assert len(steps) == left // (ranks * batch_size)
        assert {len(steps.places(step, rank)) for step in range(len(steps)) for rank in range(ranks)} <= {batch_size}


# ---- Histories -------------------------------------------------------------------------------------------------------


def test_no_sample_is_lost_and_none_comes_twice_over_many_changes_of_the_ranks(place):
    histories = [History(seed, place, changes=10) for seed in range(10_000 if LONG else 100)]
    for history in histories:
        history.run()
    assert sum(history.passes for history in histories) > 2 * len(histories)
    assert sum(history.commons for history in histories) > len(histories) // 4


def _records_late(loop, loaded):
    for count, batch in enumerate(loaded, start=1):
        yield batch
        loop.record(count)
    loop.end()


def _records_what_is_loaded(loop, loaded):
    def recorded():
        for count, batch in enumerate(loaded, start=1):
            loop.record(count)
            yield batch

    yield from list(recorded())
    loop.end()


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (module.Loop, "given", _records_late),
        (module.Loop, "given", _records_what_is_loaded),
        (module.Batches, "reset", lambda self: None),
        (module.Batches, "loop", property(lambda self: self._loop or self.begin())),
        (module.Batches, "load_state_dict", lambda self, state: self.set_epoch(state["epoch"])),
        (Steps, "is_common", lambda self, number: False),
        (Steps, "places", lambda self, number, rank: range(self.end(number) - 1, self.end(number))),
    ],
    ids=["late", "ahead", "no reset", "loop without batches", "no place", "empty", "one sample"],
)
def test_a_wrong_decision_is_found(place, monkeypatch, owner, name, wrong):
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((Violation, ArgumentError)):
        for seed in range(100):
            History(seed, place, changes=10).run()


# ---- Passes ----------------------------------------------------------------------------------------------------------


def all_of(batches):
    return [index for batch in batches for index in batch]


def test_each_pass_has_its_own_order_and_the_same_on_all_ranks(place):
    one = Batches(range(20), 3, shuffle=True, seed=3)
    first, second = all_of(one), all_of(one)
    assert first != second != sorted(second) == sorted(first)
    assert one.epoch == 1
    shares = []
    for rank in range(2):
        place.place = rank, 2
        shares.append(all_of(Batches(range(20), 3, shuffle=True, seed=3)))
    assert [shares[0], shares[1]] == [first[::2], first[1::2]]


def test_a_loop_that_was_left_goes_on_and_set_epoch_begins_a_pass(place):
    one = Batches(range(8), 2)
    assert next(iter(one)) == [0, 1]
    one.set_epoch(0)
    assert list(one) == [[2, 3], [4, 5], [6, 7]]
    one.set_epoch(0)
    assert len(list(one)) == 4
    one.set_epoch(5)
    assert (len(one), len(list(one)), one.epoch) == (4, 4, 5)


def test_a_pass_that_was_complete_at_the_last_commit_gives_nothing_more(place):
    data = Batches(range(4), 2)
    state = ObjectState(data=data, epoch=0)
    for _ in data:
        state.save()
    state.restore()
    data.set_epoch(0)
    assert list(data) == []
    state.save()  # after the loop
    state.reset()
    data.set_epoch(0)  # the program had no time to count
    assert list(data) == []
    assert list(data) == [[0, 1], [2, 3]]
    assert data.epoch == 1


def test_a_loop_that_asks_for_no_batch_after_the_last_one(place):
    one = Batches(range(4), 2)
    for first in ([0, 1], [0, 1]):
        loop = iter(one)
        assert [next(loop), next(loop)] == [first, [2, 3]]
    assert one.epoch == 1
    one.set_epoch(1)
    assert (len(one), next(iter(one))) == (2, [0, 1])


def test_how_many_batches_there_are(place):
    one = Batches(range(10), 2)
    assert len(one) == 5
    for number, _ in enumerate(one):
        assert len(one) == 5
        if number == 2:
            break
    one.reset()
    assert len(one) == 2
    place.place = 1, 2
    assert len(one) == 1


def test_one_loop_at_a_time(place):
    one = Batches(range(10), 2)
    first = iter(one)
    next(first)
    next(iter(one))
    with pytest.raises(ArgumentError, match=r"^this loop over the data has ended, because another one began"):
        next(first)
    second = iter(one)
    next(second)
    one.reset()
    with pytest.raises(ArgumentError, match=r"begin it inside the function that elastic\.run calls$"):
        next(second)
    assert Counter(all_of(one)) == Counter(range(6, 10))


def test_data_that_end_early_are_told(place):
    loop = Batches(range(10), 2).begin()
    with pytest.raises(ArgumentError, match=r"^the data ended after 2 of 5 batches"):
        list(loop.given([1, 2]))
    loop = Batches(range(2), 2).begin()
    with pytest.raises(ArgumentError, match=r"^batch 2 of a loop over the data that has 1 batches"):
        list(loop.given([1, 2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 9}, "have 8 samples, but had 9 when their state was saved"),
        ({"processed_num": 9}, "says that 9 samples are done, but there are only 8"),
        ({"processed_num": -1}, "says that -1 samples are done"),
        ({"order": 1}, "in another order than when their state was saved: give all ranks the same seed"),
    ],
)
def test_a_state_of_other_data_is_refused(place, change, message):
    one = Batches(range(8))
    state = one.state_dict()
    with pytest.raises(ArgumentError, match=message):
        one.load_state_dict({**state, **change})
    assert one.state_dict() == state


def test_a_state_of_a_sampler_is_refused(place):
    """Its order may be another one: that of a framework's permutation."""
    with pytest.raises(ArgumentError, match="in another order than"):
        Batches(range(8), 3).load_state_dict(ElasticSampler(range(8)).state_dict())


def test_other_seeds_and_orders_are_told(place):
    state = Batches(range(8), shuffle=True, seed=1).state_dict()
    Batches(range(8), shuffle=True, seed=1).load_state_dict(state)
    for other in (Batches(range(8), shuffle=True, seed=2), Batches(range(8)), Batches([], order=lambda _: range(8))):
        with pytest.raises(ArgumentError, match="in another order than"):
            other.load_state_dict(state)


def test_an_order_of_ones_own(place):
    place.place = 1, 2
    one = Batches([], 2, order=lambda epoch: [[epoch, 0], [epoch, 1], [epoch, 2], [epoch, 3]])
    assert list(one) == [[[0, 1], [0, 3]]]
    assert list(one) == [[[1, 1], [1, 3]]]


def test_a_permutation_of_a_framework(place):
    one = Batches(range(4), 2, shuffle=True, seed=5, permutation=lambda length, seed: [seed, *range(1, length)])
    assert [list(one), list(one)] == [[[5, 1], [2, 3]], [[6, 1], [2, 3]]]


def test_what_cannot_be_shared_out_is_refused(place):
    with pytest.raises(ArgumentError, match=r"^batch_size=0 must be at least 1"):
        Batches([1], 0)
    with pytest.raises(ArgumentTypeError, match=r"^batch_size=2\.0 must be a number of samples"):
        Batches([1], 2.0)
    with pytest.raises(ArgumentTypeError, match=r"^a generator has no length"):
        Batches(each for each in range(3))
