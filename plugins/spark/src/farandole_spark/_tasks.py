"""A task of Spark as a part of a job. Runs on executors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from farandole.engine import Invitation, serve

# Secrets of Spark's own, with which a process could speak for the task or the driver.
_SECRETS = ("PYTHON_WORKER_", "PYSPARK_GATEWAY_", "SPARK_AUTH", "_SPARK_AUTH")
_GPU = "gpu"


def take_part(invitation: Invitation, has_threads: bool, _items: Iterator[Any]) -> Iterator[Any]:
    """The function of a partition of an RDD, or of batches of Arrow: yields nothing, and ends with the job.

    `has_threads`: the cluster has its own OMP_NUM_THREADS for executors.
    """
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    # A stage may lie on disks, a message of the barrier does not.
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
