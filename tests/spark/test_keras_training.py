"""The training of the estimator of Keras on two ranks, beside one in one process; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import farandole
import keras
import numpy as np
import pytest
from estimators import ROWS, WorldBackend, files_of, rows_of_step, write_columns
from farandole_spark.ml.keras import KerasEstimator
from farandole_spark.ml.store import Store

BATCH, EPOCHS = 10, 2
RATE = 0.05


def small_model() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input([4]), keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)])


def estimator(folder: Path, **other: Any) -> KerasEstimator:
    settings: dict[str, Any] = {
        "backend": WorldBackend(),
        "store": Store.create(folder),
        "model": small_model(),
        "optimizer": keras.optimizers.SGD(RATE, momentum=0.9),
        "loss": "mse",
        "metrics": ["mae"],
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "batch_size": BATCH,
        "epochs": EPOCHS,
        "shuffle": False,
        "verbose": 0,
        **other,
    }
    return KerasEstimator(**settings)


def in_one_process(data: dict[str, Any], weights: Any = None) -> Any:
    """The predictions after steps with the union of two ranks' batches, and with the rate of two ranks."""
    model = small_model()
    model.compile(keras.optimizers.SGD(2 * RATE, momentum=0.9), "mse")
    for _ in range(EPOCHS):
        for step in range(ROWS // 2 // BATCH):
            rows = rows_of_step(step, BATCH)
            given = None if weights is None else weights[rows].astype("float32")
            model.train_on_batch(data["x"][rows].astype("float32"), data["y"][rows][:, None].astype("float32"), given)
    return model.predict_on_batch(data["x"].astype("float32"))[:, 0]


class Writer(keras.callbacks.Callback):
    """Says on each rank that it was called."""

    def on_train_end(self, logs: Any = None) -> None:
        assert self.model is not None


class KeptRate(keras.callbacks.Callback):
    """Sets a learning rate in the first epoch. Raises where a later epoch begins with another one."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 0:
            self.model.optimizer.learning_rate = 0.05  # as float32, 0.05 * (1 / 3) * 3 is another number
        assert float(self.model.optimizer.learning_rate) == float(np.float32(0.05))


def fit(folder: Path, **other: Any) -> tuple[Any, dict[str, Any]]:
    """The trained model, and the data."""
    trained = estimator(folder, **other)
    data = write_columns(trained.getStore())
    return trained.fit_on_parquet(dataset_idx=0), data


def predicted(model: Any, *features: Any) -> Any:
    make, args = model.prediction()
    return make(*args)(list(features))


def test_it_is_a_training_in_one_process(tmp_path: Path) -> None:
    model, data = fit(tmp_path)
    assert np.abs(predicted(model, data["x"])[0][:, 0] - in_one_process(data)).max() < 1e-5
    history = model.getHistory()
    assert len(history["loss"]) == EPOCHS and history["loss"][1] < history["loss"][0] and "mae" in history
    assert files_of(tmp_path) == [f"runs/{model.getRunId()}/checkpoint"]
    assert float(model.getModel().optimizer.learning_rate) == pytest.approx(RATE)


def test_weights_of_rows_count(tmp_path: Path) -> None:
    model, data = fit(tmp_path, sample_weight_col="w")
    assert np.abs(predicted(model, data["x"])[0][:, 0] - in_one_process(data, data["w"])).max() < 1e-5


def test_several_inputs_and_labels_with_validation_and_callbacks(tmp_path: Path) -> None:
    vector, number = keras.Input([4], name="vector"), keras.Input([1], name="number")
    hidden = keras.layers.Dense(5, "tanh")(keras.layers.Concatenate()([vector, number]))
    outputs = [keras.layers.Dense(3, "softmax", name="classes")(hidden), keras.layers.Dense(1, name="guess")(hidden)]

    def own_loss(expected: Any, found: Any) -> Any:
        return keras.ops.mean((expected - found) ** 2, -1)

    found, data = fit(
        tmp_path,
        model=keras.Model([vector, number], outputs),
        loss=["sparse_categorical_crossentropy", own_loss],
        loss_weights=[0.5, 2.0],
        metrics=None,
        feature_cols=["x", "a"],
        label_cols=["k", "y"],
        validation="is_test",
        callbacks=[keras.callbacks.ReduceLROnPlateau(patience=1), Writer()],
        shuffle=True,
        inmemory_cache_all=True,
    )
    assert len(found.getHistory()["val_loss"]) == EPOCHS
    scores, guess = predicted(found, data["x"], data["a"])
    assert found.output_sizes() == [3, 1] and scores.shape == (ROWS, 3) and guess.shape == (ROWS, 1)
    assert np.abs(scores.sum(1) - 1).max() < 1e-5


def test_a_checkpoint_callback_chooses_the_result(tmp_path: Path) -> None:
    best = keras.callbacks.ModelCheckpoint("best.keras", monitor="loss", mode="max", save_best_only=True)
    first, data = fit(tmp_path, epochs=1)
    kept, _ = fit(tmp_path, checkpoint_callback=best)  # with the highest loss: that of the first epoch
    assert np.abs(predicted(kept, data["x"])[0] - predicted(first, data["x"])[0]).max() < 1e-5


def test_a_run_is_resumed_with_the_same_model(tmp_path: Path) -> None:
    same: dict[str, Any] = {"random_seed": 5, "shuffle": True}
    whole, _ = fit(tmp_path, run_id="whole", **same)
    fit(tmp_path, run_id="parts", epochs=1, **same)
    parts, _ = fit(tmp_path, run_id="parts", **same)
    assert parts.getHistory() == whole.getHistory()
    for one, other in zip(whole.getModel().get_weights(), parts.getModel().get_weights(), strict=True):
        assert np.array_equal(one, other)


def test_dropout_is_the_same_after_a_resume(tmp_path: Path) -> None:
    def dropping() -> Any:
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(20, "tanh"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        return keras.Sequential([keras.Input([4]), *layers])

    same: dict[str, Any] = {"random_seed": 5}
    whole, _ = fit(tmp_path, run_id="whole", model=dropping(), **same)
    fit(tmp_path, run_id="parts", epochs=1, model=dropping(), **same)
    parts, _ = fit(tmp_path, run_id="parts", model=dropping(), **same)
    assert parts.getHistory() == whole.getHistory()
    for one, other in zip(whole.getModel().get_weights(), parts.getModel().get_weights(), strict=True):
        assert np.array_equal(one, other)


def test_a_run_with_another_optimizer_is_not_resumed(tmp_path: Path) -> None:
    fit(tmp_path, run_id="run")
    fit(tmp_path, run_id="run", epochs=3)
    with pytest.raises(farandole.ArgumentError, match="'run' was trained with another value of optimizer"):
        fit(tmp_path, run_id="run", optimizer=keras.optimizers.SGD(2 * RATE, momentum=0.9))


def test_a_resume_keeps_the_best_model(tmp_path: Path) -> None:
    best = keras.callbacks.ModelCheckpoint("best.keras", monitor="loss", mode="max", save_best_only=True)
    first, data = fit(tmp_path, epochs=1, run_id="one")
    fit(tmp_path, epochs=1, run_id="run", checkpoint_callback=best)
    kept, _ = fit(tmp_path, run_id="run", checkpoint_callback=best)
    assert np.abs(predicted(kept, data["x"])[0] - predicted(first, data["x"])[0]).max() < 1e-5


@pytest.mark.parametrize(("gpus", "expected"), [(0, "cpu"), (1, "gpu:0"), (2, "gpu:1")])
def test_each_rank_has_a_gpu_of_its_own_on_pytorch(gpus: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from farandole_spark.ml import _keras_training

    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(_keras_training.hvd, "local_rank", lambda: 3)
    monkeypatch.setattr(keras, "device", lambda name: name)
    assert _keras_training._device(use_gpu=True) == expected
    assert _keras_training._device(use_gpu=False) == "cpu"


def test_a_checkpoint_leaves_the_learning_rate_as_it_is(tmp_path: Path) -> None:
    found, _ = fit(tmp_path, backend=WorldBackend(3), callbacks=[KeptRate()])
    assert len(found.getHistory()["loss"]) == EPOCHS


def test_objects_of_the_user_are_sent_and_saved(tmp_path: Path) -> None:
    class Doubled(keras.layers.Layer):
        def call(self, values: Any) -> Any:
            return 2 * values

    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1), Doubled()])
    found, data = fit(tmp_path, model=model, custom_objects={"Doubled": Doubled}, epochs=1)
    packed = found.to_bytes({"model": found.getModel(), "custom_objects": {"Doubled": Doubled}})
    again = found.from_bytes(packed)["model"]
    assert np.allclose(again.predict_on_batch(data["x"]), predicted(found, data["x"])[0], atol=1e-6)


def test_a_model_that_does_not_fit_the_columns_is_told(tmp_path: Path) -> None:
    write_columns(Store.create(tmp_path))
    for other, message in (
        ({"feature_cols": ["x", "a"]}, "the model has 1 input shapes, and the estimator 2 input columns"),
        ({"feature_cols": ["a"]}, r"'a' has 1 numbers in each row, and the model's input shape is \(None, 4\)"),
        ({"label_cols": ["x"]}, r"'x' has 4 numbers in each row, and the model's label shape is \(None, 1\)"),
        ({"optimizer": None}, "needs an optimizer and a loss, or a compiled model"),
    ):
        with pytest.raises(farandole.ArgumentError, match=message):
            estimator(tmp_path, **other).fit_on_parquet(dataset_idx=0)
    assert files_of(tmp_path) == []
