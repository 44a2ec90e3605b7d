"""A task of Spark that takes part in a job. Runs on executors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from farandole.engine import Invitation, serve

# Spark's secrets, with which a process could act as the task or the driver.
_SECRETS = ("PYTHON_WORKER_", "PYSPARK_GATEWAY_", "SPARK_AUTH", "_SPARK_AUTH")
_GPU = "gpu"


def take_part(invitation: Invitation, has_threads: bool, _items: Iterator[Any]) -> Iterator[Any]:
    """Take part in a job, as the function of a partition of an RDD or of Arrow batches. Yields nothing.

    `has_threads` is true if the cluster sets OMP_NUM_THREADS for executors.
    """
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    # A stage may be written to disks; a message of the barrier is not.
    secret = context.allGather(os.urandom(32).hex())[0]
    own = context.getTaskInfos()[context.partitionId()]
    cores = context.cpus() or 1
    gpus = context.resources().get(_GPU)
    serve(
        invitation,
        order=context.partitionId(),
        secret=bytes.fromhex(secret),
        name=own.address.rpartition(":")[0] or own.address,
        gpus=[] if gpus is None else gpus.addresses,
        variables={} if has_threads else {"OMP_NUM_THREADS": str(cores)},
        leave_out=_SECRETS,
    )
    return iter(())
