"""The data of elastic training with TensorFlow: each element of a pass once, whoever comes or goes."""

import itertools
from types import SimpleNamespace

import farandole
import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import numpy as np
import pytest
import tensorflow as tf
from batches_simulation import History, Place
from digits_like import data, keras, network
from farandole._elastic import batches as batches_module
from farandole.testing import world

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def squares(count, source=None):
    numbers = tf.data.Dataset.range(count) if source is None else source
    return numbers.map(lambda number: (number, {"square": number * number}))


def numbers_of(batches):
    return [number for batch, _ in batches for number in batch.numpy().tolist()]


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True, "seed": 3}, {"shuffle": 5}, {"transform": lambda batches: batches.map(lambda x, y: (x, y))}],
    ids=["plain", "shuffled", "by a buffer", "transformed"],
)
def test_data_give_the_rest_after_a_change(alone, options):
    data = hvd.elastic.Dataset(squares(23), batch_size=4, **options)
    kept = hvd.elastic.ObjectState(data=data, epoch=0)
    orders = []
    for _ in range(2):
        data.set_epoch(kept.epoch)
        seen = []
        for number, (batch, more) in enumerate(data):
            assert tf.reduce_all(more["square"] == batch**2)
            if number == 3:  # this step fails, while the next batches are made
                break
            seen += batch.numpy().tolist()
            kept.commit()
        kept.restore()
        data.set_epoch(kept.epoch)
        assert len(data) == 3
        orders.append(seen + numbers_of(data))
        assert sorted(orders[-1]) == list(range(23))
        kept.epoch += 1
    assert (orders[0] != orders[1]) == ("shuffle" in options)


@pytest.mark.parametrize("make", [list, lambda data: list(data.batches())], ids=["loop", "fit"])
def test_a_pass_that_was_complete_when_its_state_was_saved_gives_nothing_more(alone, make):
    data = hvd.elastic.Dataset(squares(23), batch_size=4)
    for _ in range(2):
        assert len(list(itertools.islice(data, len(data)))) == len(data)  # it asks for no batch after the last one
        data.load_state_dict(data.state_dict())
        assert (len(data), make(data)) == (0, [])
        data.set_epoch(data.epoch + 1)


def test_no_sample_is_lost_and_none_comes_twice_over_many_changes_of_the_ranks(alone, monkeypatch):
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])

    def new_state(plan, seed):
        source = tf.data.Dataset.range(plan.length)
        data = hvd.elastic.Dataset(source, plan.batch_size, shuffle=True, seed=seed, drop_last=plan.drop_last)
        if seed:
            return khvd.elastic.KerasState(model, data=data, epoch=0, seen=[])
        return hvd.elastic.TensorFlowState(model.variables, data=data, epoch=0, seen=[])

    place = Place()
    monkeypatch.setattr(batches_module, "world", place)
    for seed in range(2):
        History(seed, place, 4, new_state, lambda batch: batch.numpy().tolist()).run()


@pytest.mark.parametrize(("ranks", "batch_size", "done"), [(4, 2, 3), (4, 2, 6), (3, 1, 2), (5, 3, 20), (2, 3, 11)])
def test_each_rank_has_the_elements_of_its_batches(monkeypatch, ranks, batch_size, done):
    """The pipeline gives the places that Batches says, with short, common and last steps."""
    place = SimpleNamespace(is_initialized=lambda: True, size=lambda: ranks)
    monkeypatch.setattr(batches_module, "world", place)
    seen = []
    for rank in range(ranks):
        place.rank = lambda rank=rank: rank
        data = hvd.elastic.Dataset(squares(23), batch_size)
        data.load_state_dict({**data.state_dict(), "processed_num": done})
        expected = list(data._batches.begin())
        assert [batch.numpy().tolist() for batch, _ in data] == expected
        seen += [number for batch in expected for number in batch]
    assert set(seen) == set(range(done, 23))


def _fitted():
    """A pass by two ranks, of which the second step fails before its commit, and another pass that begins it again."""
    x = np.arange(23, dtype=np.float32).reshape(-1, 1)
    data = khvd.elastic.Dataset(tf.data.Dataset.from_tensor_slices((x, x)), 4, shuffle=True, seed=1)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(khvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse", jit_compile=False)
    kept = khvd.elastic.KerasState(model, data=data, epoch=0)
    kept.sync()
    seen, fails = [], [True]

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if data.processed_num == 16 and fails and fails.pop():
                raise farandole.PeerLostError("planted")

    update, commit = khvd.elastic.UpdateDataCallback(data), khvd.elastic.CommitStateCallback(kept)
    places = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(data.processed_num))
    for _ in range(2):
        try:
            model.fit(data.batches(), callbacks=[update, Fails(), places, commit], verbose=0)
        except farandole.PeerLostError:
            kept.restore()
            kept.on_reset()
    first = list(seen)
    data.set_epoch(0)
    model.fit(data.batches(), callbacks=[update, places, commit], verbose=0)
    return first, seen[len(first) :], data.epoch, model.get_weights()[0].item()


def test_fit_begins_in_the_middle_of_a_pass():
    (first, second, epoch, weight), other = world(2).run(_fitted)
    assert first == [8, 16, 23]
    assert second == [8, 16, 23]
    assert other == (first, second, epoch, weight)
    assert epoch == 0


def test_fit_takes_one_pass_at_a_time(alone):
    model = network("float32", 0)
    model.compile(khvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse", jit_compile=False)
    x, y, batch_size = data(4, "float32")
    made = khvd.elastic.Dataset(tf.data.Dataset.from_tensor_slices((x, y)), batch_size)
    with pytest.raises(ValueError, match=r"^no batches\(\) of this dataset were asked for"):
        made.record(1)
    update = khvd.elastic.UpdateDataCallback(made)
    with pytest.raises(ValueError, match=r"^fit would use the batches of one pass for two epochs"):
        model.fit(made.batches(), epochs=2, callbacks=[update], verbose=0)
    model.fit(made.batches(), callbacks=[update], verbose=0)
    assert (made.epoch, made.processed_num) == (1, len(x))
    with pytest.raises(TypeError, match=r"^UpdateDataCallback takes a Dataset of hvd.elastic, not list"):
        khvd.elastic.UpdateDataCallback([])


def test_the_number_of_elements_must_be_known_and_true(alone):
    with pytest.raises(ValueError, match=r"^the dataset has no end"):
        hvd.elastic.Dataset(squares(3).repeat())
    unknown = squares(0, tf.data.Dataset.range(6).filter(lambda number: number < 5))
    with pytest.raises(ValueError, match=r"^the dataset does not know how many elements it has: say it with length="):
        hvd.elastic.Dataset(unknown)
    assert numbers_of(hvd.elastic.Dataset(unknown, 2, length=5)) == list(range(5))
    with pytest.raises(tf.errors.FailedPreconditionError, match="expected to contain 4 elements but contained only 3"):
        numbers_of(hvd.elastic.Dataset(unknown, 2, length=7))
    with pytest.raises(ValueError, match=r"^length=4 is given for a dataset of 3 elements"):
        hvd.elastic.Dataset(squares(3), length=4)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="outside of graphs"):
        hvd.elastic.Dataset(squares(3))
