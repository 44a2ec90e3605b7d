"""Jobs in a session of Spark Connect, whose server this test starts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import farandole
import farandole_spark
import pytest
from spark_settings import CLUSTER, SETTINGS
from test_classic import TOLD_SECONDS, AtLine, about, executors, fail, linger
from test_elastic import lose_one

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def connect(around: Path) -> Iterator[Any]:
    """A session of Connect; the server is a classic one in this process's JVM."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_REMOTE"] = "1"
    builder = SparkSession.builder.remote(CLUSTER)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.range(2).count()
    yield session
    session.stop()


def test_results_come_in_order(connect: Any, nothing_left: Callable[[], bool]) -> None:
    found = farandole_spark.run(about, (10,), num_proc=2, spark=connect)
    assert [each["rank"] for each in found] == [0, 1]
    assert [each["sum"] for each in found] == [21, 21]
    assert [each["shifted"] for each in found] == [100, 101]
    assert nothing_left()


def test_the_exception_of_a_rank_reaches_the_driver(connect: Any, nothing_left: Callable[[], bool]) -> None:
    with pytest.raises(LookupError, match="on purpose") as caught:
        farandole_spark.run(fail, num_proc=2, spark=connect)
    assert time.time() - caught.value.args[1] < TOLD_SECONDS
    assert "rank 1 of 2" in str(caught.value.__cause__)
    assert nothing_left()


def test_more_slots_than_there_are_is_an_error_at_once(connect: Any) -> None:
    began = time.monotonic()
    with pytest.raises(farandole.ArgumentError, match="num_proc=9 asks for 9 slots, and the cluster has 2 slots"):
        farandole_spark.run(about, (0,), num_proc=9, spark=connect)
    assert time.monotonic() - began < TOLD_SECONDS


def test_a_killed_executor_is_told_in_one_sentence(connect: Any, nothing_left: Callable[[], bool]) -> None:
    shown = AtLine(executors()[0].kill)
    with pytest.raises(farandole.FarandoleError, match=r"rank [01] on \S+ .*was lost") as caught:
        farandole_spark.run(linger, num_proc=2, stdout=shown, spark=connect)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert "Traceback" not in str(caught.value)
    assert nothing_left()


def test_an_interrupt_ends_everything(connect: Any, nothing_left: Callable[[], bool]) -> None:
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    shown = AtLine(lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            farandole_spark.run(linger, num_proc=2, stdout=shown, spark=connect)
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert nothing_left()
    assert len(farandole_spark.run(about, (0,), num_proc=2, start_timeout=30, spark=connect)) == 2  # the slots are free


def test_a_stage_that_is_interrupted_is_told(connect: Any, nothing_left: Callable[[], bool]) -> None:
    shown = AtLine(connect.interruptAll)
    with pytest.raises(farandole.FarandoleError, match="was lost"):
        farandole_spark.run(linger, num_proc=2, stdout=shown, spark=connect)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert nothing_left()


def test_an_elastic_job_goes_on_from_its_last_commit(
    connect: Any, tmp_path: Path, nothing_left: Callable[[], bool], capfd: pytest.CaptureFixture[str]
) -> None:
    lose_one(tmp_path, "executor", None, connect)
    assert "goes on from commit" in capfd.readouterr().err
    assert nothing_left()


def test_an_estimator_trains_and_predicts(connect: Any, tmp_path: Path) -> None:
    import torch
    from estimators import ROWS, WorldBackend, columns
    from farandole_spark.ml.store import Store
    from farandole_spark.ml.torch import TorchEstimator, TorchModel

    data = columns()
    rows = [(x.tolist(), float(y)) for x, y in zip(data["x"], data["y"], strict=True)]
    frame = connect.createDataFrame(rows, "x array<double>, y double")
    model = torch.nn.Linear(4, 1)
    trained = TorchEstimator(
        backend=WorldBackend(),
        store=Store.create(tmp_path),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.05),
        loss=torch.nn.functional.mse_loss,
        feature_cols=["x"],
        label_cols=["y"],
        verbose=0,
    ).fit(frame)
    found = [row["y__output"] for row in trained.transform(frame).collect()]
    assert len(found) == ROWS
    trained.save(str(tmp_path / "model"))
    assert TorchModel.load(str(tmp_path / "model")).getHistory() == trained.getHistory()
