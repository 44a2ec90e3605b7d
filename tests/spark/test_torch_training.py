"""The training of the estimator of PyTorch on two ranks, beside one in one process; without Spark."""

from __future__ import annotations

import copy
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole
import numpy as np
import pandas
import pytest
import torch
from estimators import ROWS, WorldBackend, files_of, rows_of_step, write_columns
from farandole import testing
from farandole.engine import pack_call
from farandole_spark.ml._predict import _function_of, _function_of_rows
from farandole_spark.ml._torch_losses import Losses
from farandole_spark.ml.store import Store
from farandole_spark.ml.torch import TorchEstimator, TorchModel
from torch.nn import functional

testing.preload("torch", "torch._dynamo")

BATCH, EPOCHS = 10, 2


def estimator(folder: Path, **other: Any) -> TorchEstimator:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    settings: dict[str, Any] = {
        "backend": WorldBackend(),
        "store": Store.create(folder),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        "loss": functional.mse_loss,
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "input_shapes": [[-1, 4]],
        "batch_size": BATCH,
        "epochs": EPOCHS,
        "shuffle": False,
        "verbose": 0,
        **other,
    }
    return TorchEstimator(**settings)


def fit(folder: Path, **other: Any) -> tuple[Any, dict[str, Any]]:
    """The trained model, and the data."""
    trained = estimator(folder, **other)
    data = write_columns(trained.getStore())
    return trained.fit_on_parquet(dataset_idx=0), data


def in_one_process(data: dict[str, Any], folder: Path, loss: Callable[..., Any] | None = None) -> Any:
    """The model after steps with the union of two ranks' batches, and with the rate of two ranks."""
    given = estimator(folder)
    model, optimizer = given.getModel(), given.getOptimizer()
    optimizer.param_groups[0]["lr"] *= 2
    inputs, labels = torch.tensor(data["x"]).float(), torch.tensor(data["y"]).float()[:, None]
    weights = torch.tensor(data["w"]).float()
    for _ in range(EPOCHS):
        for step in range(ROWS // 2 // BATCH):
            rows = rows_of_step(step, BATCH)
            optimizer.zero_grad()
            found = model(inputs[rows])
            (loss(found, labels[rows], weights[rows]) if loss else functional.mse_loss(found, labels[rows])).backward()
            optimizer.step()
    return model


def difference(one: Any, other: Any) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_it_is_a_training_in_one_process(tmp_path: Path) -> None:
    model, data = fit(tmp_path, metrics=[functional.l1_loss])
    assert difference(model.getModel(), in_one_process(data, tmp_path)) < 1e-6
    assert [each["epoch"] for each in model.getHistory()] == list(range(EPOCHS))
    losses = [each["train"]["loss"] for each in model.getHistory()]
    assert losses[0] > losses[-1] and "group_0_y" in model.getHistory()[0]["train"]["all_metrics"][0]
    assert files_of(tmp_path) == [f"runs/{model.getRunId()}/checkpoint"]
    assert model.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.05) and not model.getModel().training


def test_weights_of_rows_count(tmp_path: Path) -> None:
    def loss(found: Any, labels: Any, weights: Any) -> Any:
        return (functional.mse_loss(found, labels, reduction="none").flatten() * weights).mean()

    model, data = fit(tmp_path, sample_weight_col="w", loss=torch.nn.MSELoss())
    assert difference(model.getModel(), in_one_process(data, tmp_path, loss)) < 1e-6


def test_gradients_of_several_batches_are_added_up(tmp_path: Path) -> None:
    halves, data = fit(tmp_path, batch_size=BATCH // 2, backward_passes_per_step=2)
    assert difference(halves.getModel(), in_one_process(data, tmp_path)) < 1e-6


def test_a_function_of_the_user_does_the_steps(tmp_path: Path) -> None:
    def step(
        model: Any, optimizer: Any, shaped: Any, loss_of: Any, inputs: Any, labels: Any, weights: Any, *_: Any
    ) -> Any:
        optimizer.zero_grad()
        outputs, labels = shaped(model(*inputs), labels)
        loss = loss_of(outputs, labels, weights)
        loss.backward()
        optimizer.step()
        return outputs, loss

    model, data = fit(tmp_path, train_minibatch_fn=step, loss=None, loss_constructors=lambda **_: functional.mse_loss)
    assert difference(model.getModel(), in_one_process(data, tmp_path)) < 1e-6


def test_several_inputs_and_labels_with_validation(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(5, 3), torch.nn.Linear(4, 1)

        def forward(self, vector: Any, number: Any) -> Any:
            return self.first(torch.cat([vector, number], 1)), self.second(vector)

    def classes(output: Any, label: Any) -> Any:
        return functional.cross_entropy(output, label.long())

    model = Two()
    found, data = fit(
        tmp_path,
        model=model,
        optimizer=torch.optim.Adam(model.parameters()),
        loss=[classes, functional.mse_loss],
        loss_weights=[0.5, 2.0],
        metrics=[[classes, functional.l1_loss]],
        feature_cols=["x", "a"],
        input_shapes=None,
        label_cols=["k", "y"],
        validation="is_test",
        shuffle=True,
        inmemory_cache_all=True,
    )
    for epoch in found.getHistory():
        values = epoch["validation"]["all_metrics"][0]
        assert set(values) == {"group_0_k", "group_0_y"} and epoch["validation"]["loss"] > 0
    make, args = found.prediction()
    scores, guess = make(*args)([data["x"], data["a"]])
    assert found.output_sizes() == [3, 1] and scores.shape == (ROWS, 3) and guess.shape == (ROWS, 1)
    expected = found.getModel()(torch.tensor(data["x"]).float(), torch.tensor(data["a"]).float()[:, None])
    assert np.array_equal(scores, expected[0].detach().double().numpy())


def test_rows_are_transformed_and_steps_are_limited(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def lengths(row: dict[str, Any]) -> dict[str, Any]:
        with open(seen, "a") as file:
            file.write("x")
        return {"text": np.full(4, len(row["text"]), np.float32), "y": row["y"]}

    model, _ = fit(tmp_path, feature_cols=["text"], transformation_fn=lengths, train_steps_per_epoch=2, epochs=3)
    assert len(model.getHistory()) == 3
    assert len(seen.read_text()) >= 2 * 3 * 2 * BATCH  # ranks, epochs, steps, rows


def test_a_run_is_resumed_with_the_same_model(tmp_path: Path) -> None:
    same: dict[str, Any] = {"random_seed": 5, "shuffle": True, "epochs": 3}
    whole, _ = fit(tmp_path, run_id="whole", **same)
    fit(tmp_path, run_id="parts", **{**same, "epochs": 1})
    parts, _ = fit(tmp_path, run_id="parts", **same)
    assert parts.getHistory() == whole.getHistory()
    assert difference(parts.getModel(), whole.getModel()) == 0
    again, _ = fit(tmp_path, run_id="parts", **same)  # nothing is left to train
    assert difference(parts.getModel(), again.getModel()) == 0
    assert files_of(tmp_path) == ["runs/parts/checkpoint", "runs/whole/checkpoint"]


def test_a_run_of_something_else_is_not_resumed(tmp_path: Path) -> None:
    first = estimator(tmp_path, run_id="run")
    write_columns(first.getStore())
    write_columns(first.getStore(), number=1, groups=5)
    first.fit_on_parquet(dataset_idx=0)
    for other, message in (
        ({"batch_size": 20}, "with another value of batch_size"),
        ({"loss": functional.l1_loss}, "with another value of loss"),
        ({"random_seed": 3}, "with another value of random_seed"),
        ({"epochs": 1}, "for 2 epochs, which is more than epochs=1"),
    ):
        with pytest.raises(farandole.ArgumentError, match=f"the run 'run' was trained {message}, so it cannot be resu"):
            estimator(tmp_path, run_id="run", **other).fit_on_parquet(dataset_idx=0)
    faster = estimator(tmp_path, run_id="run")
    faster.getOptimizer().param_groups[0]["lr"] = 0.1
    with pytest.raises(farandole.ArgumentError, match="with another value of optimizer"):
        faster.fit_on_parquet(dataset_idx=0)
    with pytest.raises(farandole.ArgumentError, match="with other data"):
        estimator(tmp_path, run_id="run").fit_on_parquet(dataset_idx=1)
    assert len(estimator(tmp_path, run_id="run", verbose=1, epochs=3).fit_on_parquet(None, 0).getHistory()) == 3


def test_a_loss_moves_to_the_device_of_the_model() -> None:
    loss = torch.nn.CrossEntropyLoss(weight=torch.ones(3))
    Losses([loss, functional.mse_loss], [1.0, 1.0], None).to(torch.device("meta"))
    assert loss.weight is not None and loss.weight.device.type == "meta"


def test_predictions_leave_the_model_as_it_is(tmp_path: Path) -> None:
    model, data = fit(tmp_path)
    own = model.getModel().train()
    make, args = model.prediction()
    assert model.output_sizes() == [1] and make(*args)([data["x"]])[0].shape == (ROWS, 1)
    assert model.getModel() is own and own.training and args[0] is not own


class ByRow(TorchModel):
    """Predicts from a column that is no tensor."""

    def get_prediction_fn(self) -> Any:
        return lambda model, row: model(torch.tensor([[float(len(row["text"]))]]))


def test_a_derived_model_may_predict_row_by_row() -> None:
    model = torch.nn.Linear(1, 2)
    trained = ByRow(model=model, feature_columns=["text"], label_columns=["y"])
    found = trained.prediction_of_rows()
    assert found is not None and trained.getOutputCols() == ["y__output"]
    predict = _function_of_rows(pack_call(*found, {}, "test"), [False])
    assert predict({"text": "four"}) == (model(torch.tensor([[4.0]])).tolist()[0],)
    assert TorchModel(model=model, feature_columns=["a"], input_shapes=[[-1, 1]]).prediction_of_rows() is None
    plain = TorchModel(model=model, feature_columns=["a"], input_shapes=[[-1, 1]])
    assert np.allclose(plain.get_prediction_fn()(model, {"a": 4.0})[0][0], predict({"text": "four"})[0])


def test_a_nan_is_predicted_from() -> None:
    plain = TorchModel(model=torch.nn.Linear(1, 1), feature_columns=["a"], input_shapes=[[-1, 1]])
    predict = _function_of(pack_call(*plain.prediction(), {}, "test"), [True])
    (found,) = predict(iter([pandas.DataFrame({"f0": [1.0, float("nan")]})]))
    assert found["p0"].isna().tolist() == [False, True]


def test_dropout_is_the_same_after_a_resume(tmp_path: Path) -> None:
    def dropping() -> dict[str, Any]:
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 20), torch.nn.Dropout(0.5), torch.nn.Linear(20, 1))
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.01), "random_seed": 2}

    whole, _ = fit(tmp_path, run_id="whole", **dropping())
    fit(tmp_path, run_id="parts", epochs=1, **dropping())
    parts, _ = fit(tmp_path, run_id="parts", **dropping())
    assert difference(parts.getModel(), whole.getModel()) == 0


def test_a_store_can_go_without_runs(tmp_path: Path) -> None:
    fit(tmp_path, store=Store.create(tmp_path, save_runs=False))
    assert files_of(tmp_path) == []


def test_parameters_have_setters_and_copies(tmp_path: Path) -> None:
    trained = estimator(tmp_path)
    assert trained.setEpochs(7).setValidation(0.2).setShuffle(True) is trained
    assert (trained.getEpochs(), trained.getValidation(), trained.getShuffle()) == (7, 0.2, True)
    copied = trained.copy({trained.batch_size: 3})
    assert (copied.getBatchSize(), trained.getBatchSize()) == (3, BATCH) and copied.getModel() is trained.getModel()
    with pytest.raises(TypeError):
        trained.setEpochs("many")  # type: ignore[arg-type]


def test_parameters_that_cannot_be_are_told(tmp_path: Path) -> None:
    write_columns(Store.create(tmp_path))
    other_model = torch.optim.SGD([torch.zeros(1)], 1.0)
    for other, message in (
        ({"store": None}, "needs the parameter store: store=Store.create"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"train_steps_per_epoch": 0}, "train_steps_per_epoch must be at least 1, not 0"),
        ({"validation_steps_per_epoch": -1}, "validation_steps_per_epoch must be at least 1, not -1"),
        ({"random_seed": -1}, "random_seed must be at least 0, not -1"),
        ({"num_proc": 2}, "give num_proc or a backend"),
        ({"input_shapes": [[-1, 5]]}, r"'x' has 4 numbers in each row, and the model's input shape is \(-1, 5\)"),
        ({"optimizer": other_model}, "the optimizer has parameters of another model"),
        ({"loss": [functional.mse_loss] * 2}, "give a loss, or 1 of them"),
        ({"feature_cols": ["nothing"]}, "no column 'nothing'; they have id"),
        ({"feature_cols": ["text"]}, "the column 'text' has the type string, which no model takes"),
        ({"data_module": object()}, "data_module is not taken"),
    ):
        with pytest.raises((farandole.ArgumentError, farandole.ArgumentTypeError), match=message):
            estimator(tmp_path, **other).fit_on_parquet(dataset_idx=0)
    with pytest.raises(farandole.ArgumentError, match="no Parquet files in"):
        estimator(tmp_path).fit_on_parquet(dataset_idx=9)


def test_a_copy_of_the_model_is_trained(tmp_path: Path) -> None:
    trained = estimator(tmp_path, epochs=1)
    before = copy.deepcopy(trained.getModel())
    write_columns(trained.getStore())
    trained.fit_on_parquet({trained.epochs: 2}, dataset_idx=0)
    assert difference(before, trained.getModel()) == 0 and trained.getEpochs() == 1


# ---- Many rows -------------------------------------------------------------------------------------------------------

LONG = os.environ.get("FARANDOLE_LONG") == "1"
MANY, WIDTH = 1_000_000 if LONG else 50_000, 20


def write_many(folder: str, rows: int) -> None:
    import pyarrow
    import pyarrow.parquet

    Path(folder).mkdir(parents=True)
    values = np.random.default_rng(0).normal(size=(rows, WIDTH))
    starts = pyarrow.array(np.arange(rows + 1) * WIDTH, pyarrow.int32())
    lists = pyarrow.ListArray.from_arrays(starts, pyarrow.array(values.reshape(-1)))
    table = pyarrow.table({"x": lists, "y": values.sum(1)})
    pyarrow.parquet.write_table(table, f"{folder}/part.parquet", row_group_size=1 << 16, use_dictionary=False)


class Timed:
    """Does steps; says how much of the time was between them, and the most memory that the rank has had."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._began, self._ended, self._between = folder, 0.0, 0.0, 0.0

    def __call__(self, model: Any, optimizer: Any, shaped: Any, loss_of: Any, inputs: Any, labels: Any, *_: Any) -> Any:
        now = time.perf_counter()
        if self._began:
            self._between += now - self._ended
        else:
            self._began = now
        optimizer.zero_grad()
        outputs, labels = shaped(model(*inputs), labels)
        loss = loss_of(outputs, labels, None)
        loss.backward()
        optimizer.step()
        self._ended = time.perf_counter()
        share = self._between / max(self._ended - self._began, 1e-9)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        (self._folder / str(os.getpid())).write_text(json.dumps({"share": share, "peak_mb": peak}))
        return outputs, loss


def test_many_rows_take_little_time_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[int, list[dict[str, Any]]] = {}
    for rows in (1000, MANY):
        folder = tmp_path / str(rows)
        layers = [torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
        trained = estimator(
            folder,
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), 1e-3),
            input_shapes=[[-1, WIDTH]],
            shuffle=True,
            batch_size=32,
            epochs=1,
            train_minibatch_fn=Timed(folder),
        )
        write_many(trained.getStore().get_train_data_path(0), rows)
        trained.fit_on_parquet(dataset_idx=0)
        found[rows] = [json.loads(path.read_text()) for path in folder.iterdir() if path.name.isdecimal()]
    shares = [each["share"] for each in found[MANY]]
    grown = max(each["peak_mb"] for each in found[MANY]) - min(each["peak_mb"] for each in found[1000])
    with capsys.disabled():
        print(f"\nbetween steps {max(shares):.1%} of the time; {grown} MB more than with 1000 rows")
    assert grown < 300
    assert max(shares) <= 0.1 or not LONG  # the short form has other tests beside it
