"""Estimators on two executors of Spark: from a DataFrame to predictions, and what can go wrong on the way."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole
import numpy as np
import pytest
import torch
from estimators import ROWS, files_of, frame_of
from farandole_spark.ml._prepare import Request, prepare
from farandole_spark.ml.backend import SparkBackend
from farandole_spark.ml.store import LocalStore, Store
from farandole_spark.ml.torch import TorchEstimator, TorchModel
from test_classic import TOLD_SECONDS, AtLine, executors
from torch.nn import functional

pytestmark = pytest.mark.timeout(600)


def estimator(folder: Path, **other: Any) -> TorchEstimator:
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 1)
    settings: dict[str, Any] = {
        "num_proc": 2,
        "store": Store.create(folder),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        "loss": functional.mse_loss,
        "feature_cols": ["v"],
        "label_cols": ["y"],
        "batch_size": 10,
        "epochs": 2,
        "verbose": 0,
        "random_seed": 4,
        **other,
    }
    return TorchEstimator(**settings)


def predicted(model: Any, frame: Any) -> Any:
    rows = model.transform(frame).select("id", "y__output").collect()
    return np.array([row["y__output"] for row in sorted(rows)])


# ---- From a DataFrame to predictions ---------------------------------------------------------------------------------


def test_a_pipeline_is_trained_saved_and_loaded(warm: Any, tmp_path: Path, nothing_left: Callable[[], bool]) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import VectorAssembler

    frame, data = frame_of(warm)
    frame = frame.drop("v")
    assembler = VectorAssembler(inputCols=["a", "b", "c", "d"], outputCol="v")
    pipeline = Pipeline(stages=[assembler, estimator(tmp_path / "store", validation=0.2)]).fit(frame)
    model = pipeline.stages[1]
    assert files_of(tmp_path) == [f"store/runs/{model.getRunId()}/checkpoint"]
    assert model.getHistory()[1]["validation"]["loss"] < model.getHistory()[0]["validation"]["loss"]
    own = model.getModel()(torch.tensor(data["x"]).float()).detach().numpy()[:, 0]
    assert np.abs(predicted(pipeline, frame) - own).max() < 1e-5
    pipeline.write().overwrite().save(str(tmp_path / "pipeline"))
    again = PipelineModel.load(str(tmp_path / "pipeline"))
    assert np.array_equal(predicted(again, frame), predicted(pipeline, frame))
    assert again.stages[1].getHistory() == model.getHistory() and again.stages[1].uid == model.uid
    assert nothing_left()


def test_an_estimator_is_saved_and_loaded(warm: Any, tmp_path: Path) -> None:
    store = Store.create(tmp_path, storage_options={"auto_mkdir": True})  # for S3 it would be a secret
    estimator(tmp_path, store=store).save(str(tmp_path / "estimator"))
    loaded = TorchEstimator.load(str(tmp_path / "estimator"))
    assert loaded.getFeatureCols() == ["v"] and loaded.getStore().prefix_path == str(tmp_path)
    assert loaded.getStore().storage_options == {}
    assert loaded.getOptimizer().param_groups[0]["params"][0] is next(loaded.getModel().parameters())


def test_cross_validation_chooses_parameters(warm: Any, tmp_path: Path) -> None:
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    frame, _ = frame_of(warm)
    trained = estimator(tmp_path, num_proc=1)
    grid = ParamGridBuilder().addGrid(trained.epochs, [1, 8]).build()
    judge = RegressionEvaluator(predictionCol="y__output", labelCol="y")
    found = CrossValidator(
        estimator=trained, estimatorParamMaps=grid, evaluator=judge, numFolds=2, seed=1, parallelism=2
    ).fit(frame)
    assert found.avgMetrics[1] < found.avgMetrics[0] and len(found.bestModel.getHistory()) == 8


def test_a_run_is_resumed_with_the_same_data_only(warm: Any, tmp_path: Path) -> None:
    frame, _ = frame_of(warm)
    first = estimator(tmp_path, run_id="run").fit(frame)
    other_order = frame.orderBy(frame.y).repartition(3)
    longer = estimator(tmp_path, run_id="run", epochs=3).fit(other_order)
    assert longer.getHistory()[:2] == first.getHistory() and len(longer.getHistory()) == 3
    for other in (frame.where("id != 50"), frame.withColumn("y", frame.y * 1.01)):
        with pytest.raises(farandole.ArgumentError, match="the run 'run' was trained with other data"):
            estimator(tmp_path, run_id="run", epochs=3).fit(other)
    assert files_of(tmp_path) == ["runs/run/checkpoint"]


def test_a_model_of_keras_is_trained_saved_and_loaded(warm: Any, tmp_path: Path) -> None:
    import keras
    from farandole_spark.ml.keras import KerasEstimator, KerasModel

    frame, data = frame_of(warm)
    settings: dict[str, Any] = {"num_proc": 2, "store": Store.create(tmp_path / "store"), "verbose": 0}
    model = KerasEstimator(
        model=keras.Sequential([keras.Input([4]), keras.layers.Dense(1)]),
        optimizer=keras.optimizers.SGD(0.05),
        loss="mse",
        feature_cols=["v"],
        label_cols=["y"],
        **settings,
    ).fit(frame)
    own = model.getModel().predict_on_batch(data["x"].astype("float32"))[:, 0]
    assert np.abs(predicted(model, frame) - own).max() < 1e-5
    model.save(str(tmp_path / "model"))
    again = KerasModel.load(str(tmp_path / "model"))
    assert np.array_equal(predicted(again, frame), predicted(model, frame))
    assert again.getHistory() == model.getHistory()


def test_predictions_have_the_types_of_their_labels(warm: Any) -> None:
    class Several(torch.nn.Module):
        def forward(self, values: Any) -> Any:
            return values[:, :1] + 2.6, values[:, :1] > 0, values

    from farandole_spark.ml._columns import Column

    kinds = {
        "x": Column("x", "array", "double", 4),
        "k": Column("k", "scalar", "int"),
        "t": Column("t", "scalar", "boolean"),
    }
    frame, data = frame_of(warm)
    model = TorchModel(
        model=Several(), feature_columns=["x"], label_columns=["k", "t", "scores"], _metadata=kinds
    ).setOutputCols(["k2", "t2", "scores"])
    found = model.transform(frame)
    assert dict(found.dtypes) == {**dict(frame.dtypes), "k2": "int", "t2": "boolean", "scores": "vector"}
    row = found.where("id = 0").first()
    first = data["x"][0]
    assert (row["k2"], row["t2"]) == (round(first[0] + 2.6), bool(first[0] > 0))
    assert np.allclose(row["scores"].toArray(), first)
    with pytest.raises(farandole.ArgumentError, match="has a column 'k' already; name others: setOutputCols"):
        model.setOutputCols(["k", "t2", "scores"]).transform(frame)


class ByRow(TorchModel):
    """Predicts from columns that are no tensors."""

    def get_prediction_fn(self) -> Any:
        return lambda model, row: model(torch.tensor([[float(len(row["text"])), float(row["v"][0])]]))


def test_a_derived_model_predicts_row_by_row(warm: Any) -> None:
    frame, data = frame_of(warm)
    model = torch.nn.Linear(2, 3)
    trained = ByRow(model=model, feature_columns=["text"], label_columns=["y"])
    assert trained.getOutputCols() == ["y__output"]
    found = trained.transform(frame).select("id", "y__output").collect()
    inputs = torch.tensor([[len(text), x[0]] for text, x in zip(data["text"], data["x"], strict=True)]).float()
    expected = model(inputs).detach().numpy()
    assert np.abs([row["y__output"].toArray() - expected[row["id"]] for row in found]).max() < 1e-5
    assert trained.transform(frame.limit(0)).count() == 0


def test_a_nan_is_a_number_and_a_null_is_told(warm: Any) -> None:
    from pyspark.sql import functions

    frame, _ = frame_of(warm)
    model = TorchModel(model=torch.nn.Linear(1, 1), feature_columns=["a"], label_columns=["y"])
    with_nan = frame.withColumn("a", functions.when(frame.id == 3, float("nan")).otherwise(frame.a))
    found = model.setInputShapes([[-1, 1]]).transform(with_nan).select("id", "y__output").collect()
    assert [row["id"] for row in found if np.isnan(row["y__output"].toArray()[0])] == [3]
    with_null = frame.withColumn("a", functions.when(frame.id != 3, frame.a))
    with pytest.raises(Exception, match="the column 'a' has a null; fill it, or drop the row, before transform"):
        model.transform(with_null).collect()


# ---- Data ------------------------------------------------------------------------------------------------------------


def request(*names: str, validation: float | str | None = None) -> Request:
    return Request(names, validation, seed=1)


def test_every_row_is_written_once(warm: Any, tmp_path: Path) -> None:
    frame, data = frame_of(warm)
    store = Store.create(tmp_path)
    for validation in (None, 0.3, "is_test"):
        train, test = prepare(frame, request("id", "v", "w", validation=validation), store, str(validation))
        read = [store.get_parquet_dataset(each.path).to_table().to_pydict() for each in (train, test) if each.rows]
        ids = [number for part in read for number in part["id"]]
        assert sorted(ids) == list(range(ROWS)) and train.rows + test.rows == ROWS
        assert [each for part in read for each in part["v"]] == data["x"][ids].tolist()
        if validation == "is_test":
            assert sorted(read[1]["id"]) == list(range(0, ROWS, 3))
    assert [column.size for column in train.columns] == [1, 4, 1]


def test_data_that_no_model_can_take_are_told(warm: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import functions

    frame, _ = frame_of(warm)
    nulls = frame.withColumn("y", functions.when(frame.id != 7, frame.y)).withColumn(
        "v", functions.when(frame.id > 2, frame.v)
    )
    longer = warm.createDataFrame([(Vectors.dense([1.0]), 1.0), (Vectors.sparse(2, [0], [1.0]), 1.0)], ["v", "y"])
    for given, message in (
        (nulls.drop("v").withColumnRenamed("x", "v"), "the column 'y' has 1 null; fill them, or drop these rows"),
        (nulls, "the column 'v' has 3 nulls"),
        (longer, "the column 'v' has rows of 1 to 2 numbers"),
        (frame.limit(0), "no rows for training"),
        (frame.withColumnRenamed("v", "text2").withColumnRenamed("text", "v"), "'v' has the type string"),
    ):
        with pytest.raises(farandole.ArgumentError, match=message):
            estimator(tmp_path).fit(given)
    with pytest.raises(farandole.ArgumentError, match=r"validation=1e-09 chose no row of 100"):
        estimator(tmp_path, validation=1e-9).fit(frame)
    assert files_of(tmp_path) == []


# ---- Faults ----------------------------------------------------------------------------------------------------------


def slow(folder: Path, shown: Any, run_id: str = "run", **other: Any) -> TorchEstimator:
    """Says `rank runs` on each rank once an epoch is over, and goes on slowly."""

    def step(model: Any, optimizer: Any, shaped: Any, loss_of: Any, inputs: Any, labels: Any, *_: Any) -> Any:
        optimizer.zero_grad()
        outputs, labels = shaped(model(*inputs), labels)
        loss = loss_of(outputs, labels, None)
        loss.backward()
        optimizer.step()
        model.steps = getattr(model, "steps", 0) + 1
        if model.steps == 6 and waits:
            print("rank runs", flush=True)
            time.sleep(600)
        return outputs, loss

    waits = shown is not None
    backend = SparkBackend(2, **({"stdout": shown} if shown is not None else {}))
    return estimator(
        folder, num_proc=None, backend=backend, train_minibatch_fn=step, run_id=run_id, epochs=2, shuffle=True, **other
    )


@pytest.mark.parametrize("fault", ["executor", "cancel"])
def test_a_lost_stage_is_told_and_its_run_resumed(
    fault: str, warm: Any, tmp_path: Path, nothing_left: Callable[[], bool], await_executors: Callable[[], None]
) -> None:
    frame, _ = frame_of(warm)
    shown = AtLine(executors()[0].kill if fault == "executor" else warm.sparkContext.cancelAllJobs)
    with pytest.raises(farandole.FarandoleError, match="was lost"):
        slow(tmp_path, shown).fit(frame)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert files_of(tmp_path) == ["runs/run/checkpoint"]
    assert nothing_left()
    await_executors()
    resumed = slow(tmp_path, None).fit(frame)
    whole = slow(tmp_path, None, "whole").fit(frame)
    assert resumed.getHistory() == whole.getHistory()
    for one, other in zip(resumed.getModel().parameters(), whole.getModel().parameters(), strict=True):
        assert torch.equal(one, other)


class Full(LocalStore):
    """A store without room for files that have this in their path."""

    def __init__(self, prefix_path: Path, part: str) -> None:
        super().__init__(prefix_path)
        self._part = part

    def _connect(self) -> Any:
        from fsspec.implementations.local import LocalFileSystem

        part = self._part

        class Small(LocalFileSystem):
            def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
                if "w" in mode and part in path:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().open(path, mode, **options)

        return Small(skip_instance_cache=True)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("intermediate", "the training data were not written: the store is full"),
        ("checkpoint", "runs/run/checkpoint was not written: the store is full; remove files from it"),
    ],
)
def test_a_full_store_is_told(part: str, message: str, warm: Any, tmp_path: Path) -> None:
    frame, _ = frame_of(warm)
    with pytest.raises(farandole.FarandoleError, match=message):
        estimator(tmp_path, store=Full(tmp_path, part), run_id="run").fit(frame)
    assert files_of(tmp_path) == []


def test_more_ranks_than_rows_work(warm: Any, tmp_path: Path) -> None:
    frame, _ = frame_of(warm)
    model = estimator(tmp_path).fit(frame.limit(1))
    assert len(model.getHistory()) == 2


def test_two_fits_at_once_do_not_mix_their_data(warm: Any, tmp_path: Path) -> None:
    frame, _ = frame_of(warm)
    found: dict[int, Any] = {}
    # Made one after the other: threads share the generator that draws the first weights.
    estimators = [estimator(tmp_path, num_proc=1, run_id=f"run{number}") for number in range(2)]

    def fit(number: int) -> None:
        found[number] = estimators[number].fit(frame)

    threads = [threading.Thread(target=fit, args=(number,)) for number in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    one, other = (found[number].getModel().weight for number in range(2))
    assert torch.equal(one, other) and files_of(tmp_path) == ["runs/run0/checkpoint", "runs/run1/checkpoint"]
