"""Keras: data of unknown length that last longer on one rank than on another."""

import random
import re
import time

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import pytest
import tensorflow as tf
from digits_like import data, keras
from farandole.testing import World, world
from fitting import compiled, start

pytestmark = pytest.mark.timeout(300)


def average():
    return khvd.callbacks.MetricAverageCallback()


BOTH = start, average


def generated(batches_of_epochs, longest_pause=0.0):
    """Data of unknown length, with so many batches in each epoch."""
    epochs, pauses = iter(batches_of_epochs), random.Random(hvd.rank())

    def batches():
        count = next(epochs)
        x, y, batch_size = data(count, "float32")
        for first in range(0, count * batch_size, batch_size):
            time.sleep(pauses.choice([0.0, longest_pause]))
            yield x[first : first + batch_size], y[first : first + batch_size]

    shapes = tf.TensorSpec((None, 6)), tf.TensorSpec((None, 3))
    return tf.data.Dataset.from_generator(batches, output_signature=shapes)


def fit(model, counts, callbacks=BOTH, longest_pause=0.0, **options):
    generator = generated(counts, longest_pause)
    return model.fit(generator, epochs=len(counts), callbacks=[make() for make in callbacks], verbose=0, **options)


def why_fit_fails(counts, options):
    return _why_fit_fails(counts[hvd.rank()], **options)


def _why_fit_fails(counts, callbacks=BOTH, passes=1, validates=False, **options):
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=passes)
    model = compiled(optimizer, seed=3, wrap=False, **options)
    try:
        fit(model, counts, callbacks, validation_data=data(2, "float32")[:2] if validates else None)
    except (hvd.MismatchError, tf.errors.FailedPreconditionError) as error:
        return str(error)
    return ""


def check_that_all_hear_of_it(counts, fewest, most, batches, **options):
    with World(len(counts)) as ranks:
        for said in ranks.run(why_fit_fails, counts, options, timeout=45):
            assert re.search(f"rank {fewest} has ended its epoch after {batches} batches", said), said
            assert re.search(f"but rank {most} .* has more: ", said), said
            assert "steps_per_epoch" in said


@pytest.mark.parametrize(
    ("counts", "fewest", "most"),
    [([[7], [6]], 1, 0), ([[6], [7]], 0, 1), ([[6], [7], [6]], "[02]", 1), ([[7], [6], [7]], 1, "[02]")],
    ids=str,
)
def test_a_rank_whose_data_end_first_is_named(counts, fewest, most):
    check_that_all_hear_of_it(counts, fewest, most, 6)


def test_only_the_second_epoch_is_uneven():
    check_that_all_hear_of_it([[6, 6], [6, 5]], 1, 0, 5)


def test_a_rank_that_lacks_the_batch_in_which_parameters_are_compared():
    check_that_all_hear_of_it([[2], [1]], 1, 0, 1)


@pytest.mark.parametrize("callback", BOTH)
def test_one_callback_is_enough(callback):
    check_that_all_hear_of_it([[7], [6]], 1, 0, 6, callbacks=[callback])


def test_batches_that_are_validated_executed_together_or_added_up():
    check_that_all_hear_of_it([[9], [6]], 1, 0, "[68]", validates=True, steps_per_execution=4)
    check_that_all_hear_of_it([[6], [8]], 0, 1, 6, passes=2)


def even_data(epochs):
    """Ranks that are slow now and then are waited for."""
    for options in ({}, {"validation_data": data(1 + hvd.rank(), "float32")[:2]}):
        fit(compiled(seed=3), [3] * epochs, longest_pause=0.05, **options)
        fit(compiled(seed=3, steps_per_execution=2), [3] * epochs, longest_pause=0.05, **options)
    passes = khvd.DistributedOptimizer(keras.optimizers.SGD(0.05), backward_passes_per_step=2)
    fit(compiled(passes, seed=3, wrap=False), [3] * epochs, longest_pause=0.05)


def test_even_data_may_come_slowly():
    world(2).run(even_data, 5, timeout=120)


def data_of_two_sets():
    pair, other = hvd.add_process_set([0, 2]), hvd.add_process_set([1])
    mine, counts = (other, [5, 4, 3]) if hvd.rank() == 1 else (pair, [3, 4])
    optimizer = khvd.DistributedOptimizer(keras.optimizers.SGD(0.05), process_set=mine)
    fit(compiled(optimizer, seed=3, wrap=False), counts, [start])
    for added in (pair, other):
        hvd.remove_process_set(added)


def test_ranks_that_share_no_gradients_have_their_own_numbers():
    world(3).run(data_of_two_sets, timeout=60)
