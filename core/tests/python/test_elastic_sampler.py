"""Which samples of a pass are left, for any number of ranks: each once, none lost."""

import random
from functools import partial

import pytest
from farandole import ArgumentError
from farandole._elastic import sampler as module
from farandole.elastic import ElasticSampler


class Place:
    def __init__(self, rank=0, size=1):
        self.place = rank, size

    def rank(self):
        return self.place[0]

    def size(self):
        return self.place[1]

    def is_initialized(self):
        return True


@pytest.fixture
def place(monkeypatch):
    made = Place()
    monkeypatch.setattr(module, "world", made)
    return made


def of_all_ranks(place, size, make):
    """One sampler per rank of a world of this size."""
    made = []
    for rank in range(size):
        place.place = rank, size
        made.append(make())
    return made


@pytest.mark.parametrize("seed", range(40))
def test_no_sample_is_lost_and_few_come_twice(place, seed):
    """A pass in which the number of ranks changes at random commits, and steps after the last commit are done again."""
    dice = random.Random(seed)
    length, size, batch = dice.randint(0, 60), dice.randint(1, 5), dice.randint(1, 4)
    data = range(length)
    samplers = of_all_ranks(place, size, lambda: ElasticSampler(data, seed=seed))
    done, state, spare = [], samplers[0].state_dict(), 0
    while True:
        shares = []
        for rank, each in enumerate(samplers):
            place.place = rank, size
            shares.append(list(each))
            assert len(each) == len(shares[-1])
        assert len({len(each) for each in shares}) == 1
        steps = -(-len(shares[0]) // batch)
        stop = dice.choice([steps, dice.randint(0, steps)])
        for step in range(stop):
            done += [index for share in shares for index in share[step * batch : (step + 1) * batch]]
            for each in samplers:
                each.record_batch(step, batch)
        spare += size
        assert len({str(each.state_dict()) for each in samplers}) == 1
        state = samplers[0].state_dict()
        if stop == steps:
            break
        size = dice.randint(1, size)
        samplers = of_all_ranks(place, size, partial(_loaded, data, seed, state))
    assert sorted(set(done)) == list(data)
    assert len(done) - length < spare + 1
    assert state["processed_num"] == length


def _loaded(data, seed, state):
    made = ElasticSampler(data, seed=seed)
    made.load_state_dict(state)
    return made


def test_each_pass_has_its_own_order_and_the_same_on_all_ranks(place):
    one = ElasticSampler(range(20), seed=3)
    first = list(one)
    one.set_epoch(1)
    second = list(one)
    assert first != second != sorted(second) == sorted(first)
    place.place = 0, 2
    two = ElasticSampler(range(20), seed=3)
    assert list(two) == first[::2]
    two.set_epoch(1)
    assert list(two) == second[::2]
    assert list(ElasticSampler(range(4), shuffle=False)) == [0, 2]


def test_a_pass_goes_on_where_it_was_and_the_same_number_does_not_begin_it_again(place):
    one = ElasticSampler(range(8), shuffle=False)
    list(one)
    one.record_batch(0, 3)
    one.set_epoch(0)
    assert list(one) == [3, 4, 5, 6, 7]
    state = one.state_dict()
    one.set_epoch(1)
    assert list(one) == list(range(8))
    one.load_state_dict(state)
    assert list(one) == [3, 4, 5, 6, 7]


def test_a_loop_without_set_epoch_begins_again_but_not_what_was_complete_when_it_was_saved(place):
    one = ElasticSampler(range(4), shuffle=False)
    list(one)
    one.record_batch(0, 4)
    state = one.state_dict()
    assert list(one) == [0, 1, 2, 3]
    one.load_state_dict(state)
    assert list(one) == []


def test_the_ranks_are_asked_for_at_each_loop(place):
    one = ElasticSampler(range(6), shuffle=False)
    assert list(one) == [0, 1, 2, 3, 4, 5]
    place.place = 1, 3
    assert len(one) == 2
    assert list(one) == [1, 4]


def test_a_batch_that_is_recorded_twice_is_refused(place):
    one = ElasticSampler(range(8))
    one.record_batch(0, 2)
    one.record_batch(3, 2)
    for again in (0, 3):
        with pytest.raises(
            ArgumentError, match=f"^record_batch: batch {again} comes after batch 3, which was recorded"
        ):
            one.record_batch(again, 2)
    assert one.processed_num == 4
    list(one)  # another loop, in which batches are counted from 0 again
    one.record_batch(0, 2)
    assert one.processed_num == 6


def test_indices_are_recorded_in_the_order_that_was_given(place):
    place.place = 1, 2
    one = ElasticSampler(range(10), shuffle=False)
    assert list(one) == [1, 3, 5, 7, 9]
    one.record_indices([1, 3])
    assert one.processed_num == 4
    with pytest.raises(ArgumentError, match=r"^record_indices: sample 3 was recorded already"):
        one.record_indices([3])
    with pytest.raises(ArgumentError, match=r"^record_indices: sample 8 is not the next one"):
        one.record_indices([5, 8])
    with pytest.raises(ArgumentError, match=r"^record_indices: sample 11 is not the next one"):
        one.record_indices([5, 7, 9, 11])
    assert one.processed_num == 4


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"epoch": 0, "processed_num": 9}, "says that 9 samples are done, but its data have only 8"),
        ({"epoch": 0, "processed_num": -1}, "says that -1 samples are done"),
        ({"epoch": 0, "processed_num": 2, "length": 9}, "have 8 samples, but had 9 when its state was saved"),
    ],
)
def test_a_state_of_other_data_is_refused(place, state, message):
    one = ElasticSampler(range(8))
    with pytest.raises(ArgumentError, match=message):
        one.load_state_dict(state)
    assert one.state_dict() == {"epoch": 0, "processed_num": 0, "length": 8}


def test_a_state_of_horovods_is_taken(place):
    one = ElasticSampler(range(8), shuffle=False)
    one.load_state_dict({"epoch": 2, "processed_num": 5})
    assert list(one) == [5, 6, 7]
    assert one.epoch == 2
