"""Finds the cluster of the program: a session that it gives, or the one that is active."""

from __future__ import annotations

from typing import Any, Protocol

import farandole

from farandole_spark._classic import Classic
from farandole_spark._connect import Connect
from farandole_spark._slots import Slots
from farandole_spark._stage import Stage
from farandole_spark._tasks import Plan


class Cluster(Protocol):
    """The questions of a job to a cluster."""

    def setting(self, name: str, otherwise: str = "") -> str:
        """A setting of Spark."""

    def slots(self) -> Slots:
        """Count them."""

    def addresses(self) -> tuple[str, str]:
        """The address for executors, and the one to listen at, "" for the same."""

    def start(self, plan: Plan, tasks: int, title: str) -> Stage:
        """Start a barrier stage."""


def find(spark: Any = None) -> Cluster:
    """The cluster of a session, by default of the active one, else of a new one.

    Raises:
        FarandoleError: PySpark is missing, or too old for this kind of session.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise farandole.FarandoleError(
            f"farandole_spark needs PySpark ({error}): python -m pip install 'pyspark>=3.5'"
        ) from error
    session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if not type(session).__module__.startswith("pyspark.sql.connect"):
        return Classic(session.sparkContext)
    import pyspark

    if int(pyspark.__version__.split(".")[0]) < 4:
        raise farandole.FarandoleError(
            f"Spark Connect runs no barrier stage for Python in PySpark {pyspark.__version__}; use PySpark 4, or a "
            "classic session."
        )
    return Connect(session)
