"""Decisions and arguments: no Spark is needed here, and no PySpark."""

from __future__ import annotations

import inspect
import io
import socket
import sys
import threading
from types import ModuleType

import farandole
import farandole_spark
import pytest
from farandole.engine import Call, TaskServer
from farandole_spark import HorovodRunner, _cluster, _run
from farandole_spark._arguments import count_of
from farandole_spark._connect import slots_of_settings
from farandole_spark._job import run_stage
from farandole_spark._slots import Slots, too_few, waiting
from farandole_spark._stage import Part, Stage, explain


@pytest.mark.parametrize(
    ("wanted", "slots", "asked_for_s", "is_refused"),
    [
        (9, Slots(2, 2), 0.0, True),
        (2, Slots(2, 0), 99.0, False),
        (9, Slots(2, 2, is_young=True), 1.0, False),
        (9, Slots(2, 2, is_young=True), 6.0, True),
        (9, Slots(None, None), 99.0, False),
    ],
)
def test_a_cluster_that_is_too_small_is_refused_at_once(
    wanted: int, slots: Slots, asked_for_s: float, is_refused: bool
) -> None:
    said = too_few(wanted, slots, asked_for_s)
    assert bool(said) == is_refused
    assert "num_proc=9 asks for 9 slots, and the cluster has 2 slots" in said or not said


def test_the_wait_names_both_numbers() -> None:
    assert waiting(9, Slots(12, 2)) == "waiting for 9 slots, 2 free"
    assert waiting(9, Slots(2, 2)) == "waiting for 9 slots, the cluster has 2"
    assert waiting(2, Slots(2, 2)) == waiting(2, Slots(2, None)) == ""


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        (("local[4]", "", "", "2"), 2),
        (("local-cluster[2,3,1024]", "", "", ""), 6),
        (("k8s://x", "5", "8", "4"), 10),
        (("yarn", "", "8", "1"), None),
    ],
)
def test_a_server_tells_its_slots_by_settings(settings: tuple[str, str, str, str], slots: int | None) -> None:
    assert slots_of_settings(*settings) == slots


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Traceback\n farandole.FarandoleError: h1 cannot connect to it.\n\tat java", "h1 cannot connect to it"),
        ("ModuleNotFoundError: No module named 'farandole_spark'", "the executors have no farandole-spark"),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11, x",
            "executors have Python 3.10 and the driver has 3.11",
        ),
        ("x [SPARK-24942]: Barrier execution mode", "no barrier stage with dynamic allocation"),
        ("Job 0 failed: ExecutorLostFailure (executor 1 exited) Reason: y\nmore", "ExecutorLostFailure (executor 1"),
        ("java.lang.Odd\n  at x", "java.lang.Odd"),
        ("", "it does not say why"),
    ],
)
def test_errors_of_spark_become_one_sentence(text: str, sentence: str) -> None:
    assert sentence in explain(text)
    assert "\n" not in explain(text) and not explain(text).endswith(".")


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_number_of_ranks_is_positive(wrong: int) -> None:
    with pytest.raises(farandole.ArgumentError, match="at least 1"):
        count_of(wrong)


@pytest.mark.parametrize("wrong", ["2", 2.0, True])
def test_a_number_of_ranks_is_whole(wrong: object) -> None:
    with pytest.raises(farandole.ArgumentTypeError, match="whole number"):
        count_of(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whole number"):
        HorovodRunner(np=wrong)  # type: ignore[arg-type]


def test_the_runner_has_the_arguments_that_programs_know() -> None:
    with pytest.raises(TypeError):
        HorovodRunner(2)  # type: ignore[misc]
    with pytest.raises(ValueError, match="'all' or 'log_callback_only'"):
        HorovodRunner(np=2, driver_log_verbosity="some")
    with pytest.warns(DeprecationWarning, match="np=0"):
        HorovodRunner(np=0)
    assert str(inspect.signature(HorovodRunner.run)) == "(self, main: 'Callable[..., T]', **kwargs: 'Any') -> 'T'"


def _ranks_of(base: int) -> list[int]:
    import farandole.numpy as hvd
    import numpy

    hvd.init()
    farandole_spark.log_to_driver(f"told by {hvd.rank()}")
    gathered: list[int] = hvd.allgather(numpy.array([base + hvd.rank()])).tolist()
    return [hvd.rank(), *gathered]


def test_below_zero_the_ranks_are_processes_of_the_driver(capsys: pytest.CaptureFixture[str]) -> None:
    assert HorovodRunner(np=-2).run(_ranks_of, base=7) == [0, 7, 8]
    told = capsys.readouterr().out.splitlines()
    assert sorted(told) == ["[0] told by 0", "[1] told by 1"]


def test_without_pyspark_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(farandole.FarandoleError, match=r"python -m pip install 'pyspark>=3\.5'"):
        farandole_spark.run(_ranks_of, (1,), num_proc=2)


class _Settings:
    """A cluster of which only settings and counts are asked."""

    def __init__(self, slots: list[Slots], **settings: str) -> None:
        self._slots, self._settings = slots, settings

    def setting(self, name: str, otherwise: str = "") -> str:
        return self._settings.get(name.replace(".", "_"), otherwise)

    def slots(self) -> Slots:
        return self._slots.pop(0) if len(self._slots) > 1 else self._slots[0]


def test_dynamic_allocation_is_refused() -> None:
    cluster = _Settings([Slots(2, 2)], spark_dynamicAllocation_enabled="true")
    with pytest.raises(farandole.ArgumentError, match="dynamic allocation"):
        _run._await_slots(cluster, 2, 0.0)  # type: ignore[arg-type]


def test_a_job_waits_for_slots_that_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farandole_spark._job._POLL_SECONDS", 0.0)
    cluster = _Settings([Slots(2, 0), Slots(2, 1), Slots(2, 2)])
    assert _run._await_slots(cluster, None, float("inf")) == 2  # type: ignore[arg-type]
    with pytest.raises(farandole.FarandoleError, match="within its start timeout: still waiting for 2 slots, 1 free"):
        _run._await_slots(_Settings([Slots(2, 1)]), 2, 0.0)  # type: ignore[arg-type]


class _Started(_Settings):
    """A cluster whose stage ends at once."""

    def start(self, _part: Part, _tasks: int, _title: str) -> Stage:
        return Stage(lambda: None, lambda: None, threading.Thread)


def test_a_stage_that_ends_before_its_tasks_begin_has_failed() -> None:
    with (
        Call(print, (), None, "test.run") as call,
        pytest.raises(farandole.FarandoleError, match="has failed: it ended"),
    ):
        run_stage(_Started([]), TaskServer("127.0.0.1"), 1, float("inf"), call, None)  # type: ignore[arg-type]


def test_a_port_that_another_program_has_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Call(print, (), None, "test.run") as call:
        server = TaskServer("127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(farandole.FarandoleError, match=r"the driver cannot listen at 127\.0\.0\.1, port [0-9]+ "):
            run_stage(_Started([]), server, 1, float("inf"), call, None)  # type: ignore[arg-type]


def test_a_stranger_is_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        sparkContext = object()

    fake = ModuleType("pyspark.sql")
    fake.SparkSession = Session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    monkeypatch.setitem(sys.modules, "pyspark.sql", fake)
    assert isinstance(_cluster.find(Session()), _cluster.Classic)


def test_a_callback_of_keras_tells_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    from farandole_spark.keras import LogCallback

    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    callback = LogCallback(per_batch_log=True)
    assert isinstance(callback, keras.callbacks.Callback)
    callback.on_epoch_begin(3)
    callback.on_train_batch_end(0, {"loss": 0.25})
    callback.on_epoch_end(3, {"loss": 0.5, "accuracy": 1.0})
    first, *others = shown.getvalue().splitlines()
    assert first.startswith("epoch 3 begins at ")
    assert others == ["batch 0 ends: loss 0.25", "epoch 3 ends: loss 0.5, accuracy 1"]
