"""Finds the program's cluster: that of a given session, or of the active one."""

from __future__ import annotations

from typing import Any

import farandole

from farandole_spark._classic import Classic
from farandole_spark._connect import Connect

Cluster = Classic | Connect
"""Answers the questions of a job: settings, slots, addresses; and starts its barrier stage."""


def find(spark: Any = None) -> Cluster:
    """Return the cluster of a session, by default of the active session or a new one.

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
