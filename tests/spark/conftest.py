"""A small Spark on this machine: two executors with a slot each."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from spark_settings import CLUSTER, SETTINGS

_END_SECONDS = 10.0
_MARK = "MARK_OF_SPARK_TESTS"  # in the environment of all that these tests start


@pytest.fixture(scope="session")
def around(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for everything that Spark and jobs write; the environment of Spark is set."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ.update(
        **{_MARK: os.urandom(8).hex()},
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_DIRS=str(folder),
        SPARK_WORKER_DIR=str(folder / "work"),
    )
    return folder


@pytest.fixture(scope="session")
def spark(around: Path) -> Iterator[Any]:
    """A classic session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(CLUSTER)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def await_executors(spark: Any) -> Callable[[], None]:
    """Waits until both executors are there and have Python, also after one was killed."""

    def wait() -> None:
        context = spark.sparkContext
        deadline = time.monotonic() + 60
        while context._jsc.sc().getExecutorMemoryStatus().size() < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        context.parallelize(range(2), 2).barrier().mapPartitions(list).collect()

    return wait


@pytest.fixture
def warm(spark: Any, await_executors: Callable[[], None]) -> Any:
    """The same, once both executors are there and have Python."""
    await_executors()
    return spark


def of_job() -> list[psutil.Process]:
    """The processes of our jobs that are there: launchers, ways, agents and ranks, but not this one."""
    found = []
    for process in psutil.process_iter():
        try:
            words, mark = process.cmdline(), process.environ().get(_MARK)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
        if mark == os.environ[_MARK] and process.pid != os.getpid() and any("farandole" in word for word in words):
            found.append(process)
    return found


@pytest.fixture
def nothing_left(around: Path) -> Callable[[], bool]:
    """Waits until the processes that have come since the test began have gone. Returns whether they have."""
    before = {process.pid for process in of_job()}

    def check() -> bool:
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            if not {process.pid for process in of_job()} - before:
                return True
            time.sleep(0.1)
        return False

    return check
