"""Who runs the ranks of a `fit`, with the arguments of horovod.spark.run."""

from __future__ import annotations

from farandole_spark.ml import backend as _backend
from farandole_spark.ml.backend import Backend, LocalBackend

import horovod.spark


class SparkBackend(_backend.SparkBackend):
    """Runs ranks in tasks of Spark.

    Args:
        num_proc: number of ranks, by default all slots of the cluster.
        env: variables for the ranks.
        options: other arguments of `horovod.spark.run`.
    """

    _run = staticmethod(horovod.spark.run)
