"""Keras: models that are saved and loaded."""

import os

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import pytest
from digits_like import bits, keras, same_everywhere, state
from farandole.testing import world
from fitting import compiled, fit, start, warnings_of

pytestmark = pytest.mark.timeout(300)


def saved_and_loaded(folder, ending):
    """Training goes on after load_model as if it had not been interrupted."""
    path = os.path.join(folder, f"model{ending}")
    options = {"loss": keras.losses.MeanSquaredError(), "run_eagerly": ending == ".h5"}
    straight, interrupted = (compiled(keras.optimizers.Adam(0.01), seed=5, **options) for _ in range(2))
    fit(straight, start()), fit(straight)
    fit(interrupted, start())
    if hvd.rank() == 0:
        interrupted.save(path)
    hvd.barrier()
    loaded = khvd.load_model(path)
    assert type(loaded.optimizer).__name__ == "Adam"
    theirs = keras.models.load_model(path)  # what a program without Farandole has
    assert bits(theirs.get_weights()) == bits(interrupted.get_weights())
    assert int(loaded.optimizer.iterations) == 3
    assert bits(state(loaded.optimizer)) == bits(state(theirs.optimizer))
    if ending == ".keras":
        assert len(warnings_of(lambda: fit(theirs, start()), "load_model")) == 1
    if len(state(theirs.optimizer)) < len(state(interrupted.optimizer)):
        return  # Keras 3 does not read all that it has written to .h5
    assert bits(state(loaded.optimizer)) == bits(state(interrupted.optimizer))
    loaded.jit_compile, loaded.run_eagerly = False, options["run_eagerly"]
    fit(loaded, start())
    assert bits(loaded.get_weights()) == bits(straight.get_weights())
    assert same_everywhere(bits(loaded.get_weights()))

    other = khvd.load_model(path, compression=khvd.Compression.fp16, backward_passes_per_step=2, compile=True)
    other.run_eagerly = True
    fit(other, start())


@pytest.mark.parametrize("ending", [".keras", ".h5"])
def test_a_saved_model_goes_on_where_it_was(tmp_path, ending):
    world(2).run(saved_and_loaded, str(tmp_path), ending, timeout=120)


def registered(folder):
    path = os.path.join(folder, "model.keras")

    @keras.utils.register_keras_serializable("mine", "Slow")
    class Slow(keras.optimizers.SGD):
        """A user's own."""

    model = compiled(Slow(0.01), seed=6)
    fit(model)
    if hvd.rank() == 0:
        model.save(path)
    hvd.barrier()
    assert type(keras.models.load_model(path).optimizer) is Slow
    loaded = khvd.load_model(path, custom_optimizers=[Slow])
    assert isinstance(loaded.optimizer, Slow)
    fit(loaded, start())


def test_registered_optimizers_are_saved_under_their_name(tmp_path):
    world(2).run(registered, str(tmp_path), timeout=120)
