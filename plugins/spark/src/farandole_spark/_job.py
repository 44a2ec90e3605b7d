"""Waits for slots, and runs a stage with its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import farandole
from farandole.engine import Call, CommitTarget, TaskServer, WaitMessages

from farandole_spark._cluster import Cluster
from farandole_spark._slots import Slots
from farandole_spark._stage import Stage
from farandole_spark._tasks import take_part

_POLL_SECONDS = 0.2
_QUIET_SECONDS = 5.0
_REASON_SECONDS = 3.0  # Spark reports why an executor is gone some time after its connections end


def await_ranks(
    cluster: Cluster,
    fit: Callable[[Slots, float], tuple[int, str]],
    wanted: int | None,
    deadline: float,
    late: str,
    quiet_s: float = 1.0,
) -> int:
    """Wait until a cluster has slots for ranks, and return their number.

    `fit` returns, for the slots and the seconds waited, how many ranks can start and what else is needed. `wanted` is
    None if the slots decide. `late` is the sentence after the deadline, with a place for what is needed.

    Raises ArgumentError if the cluster cannot run barrier stages, or does not tell the slots that decide, and
    FarandoleError after the deadline.
    """
    if cluster.setting("spark.dynamicAllocation.enabled").lower() == "true":
        raise farandole.ArgumentError(
            "Spark runs no barrier stage with dynamic allocation; set spark.dynamicAllocation.enabled to false."
        )
    tell, began = WaitMessages(quiet_s), time.monotonic()
    while True:
        slots = cluster.slots()
        if wanted is None and slots.total is None:
            raise farandole.ArgumentError("this cluster does not tell how many slots it has; give num_proc.")
        ranks, waits = fit(slots, time.monotonic() - began)
        if ranks:
            return ranks
        if time.monotonic() >= deadline:
            raise farandole.FarandoleError(late.format(waits or "waiting for slots"))
        tell(waits)
        time.sleep(_POLL_SECONDS)


def run_stage(
    cluster: Cluster,
    server: TaskServer,
    ranks: int,
    deadline: float,
    call: Call,
    commits: CommitTarget | None,
    **how: Any,
) -> list[Any]:
    """Run a job in a new stage until its last task ends, and return the results.

    The tasks must come before `deadline`. See `Call.run` for `how` and the exceptions; a lost task has Spark's reason.
    """
    has_threads = bool(cluster.setting("spark.executorEnv.OMP_NUM_THREADS"))
    stage, ended_well = None, False
    _listen(server)
    try:
        stage = cluster.start(partial(take_part, server.invite(commits), has_threads), ranks, call.title)
        _await_tasks(server, stage, ranks, deadline)
        results = call.run(server, "Spark", ranks, **how)
        ended_well = True
        return results
    except farandole.FarandoleError as error:
        if stage is None or type(error) is not farandole.FarandoleError or "lost" not in str(error):
            raise
        stage.await_end(_REASON_SECONDS)
        why = f" Spark says: {stage.reason}." if stage.reason else ""
        raise farandole.FarandoleError(f"{error}{why}") from None
    finally:
        server.__exit__()  # ends the tasks that have no agent
        if stage is not None:
            stage.end(at_once=not ended_well)


def _listen(server: TaskServer) -> None:
    try:
        server.__enter__()
    except OSError as error:
        raise farandole.FarandoleError(
            f"the driver cannot listen at {server.bind or server.address}, port {server.port or 'any'} "
            f"({error.strerror}); give another driver_address or driver_port."
        ) from error


def _await_tasks(server: TaskServer, stage: Stage, ranks: int, deadline: float) -> None:
    tell = WaitMessages(_QUIET_SECONDS)
    while not server.wait(ranks, _POLL_SECONDS):
        here = len(server.tasks())
        if stage.is_over:
            why = stage.reason or "it ended before all of its tasks had begun"
            raise farandole.FarandoleError(f"Spark's stage has failed: {why}.")
        if time.monotonic() >= deadline:
            raise farandole.FarandoleError(
                f"{here} of {ranks} tasks connected to the driver at {'{}:{}'.format(*server.endpoint)} within the "
                "start timeout; free slots, or give a longer start_timeout."
            )
        tell(f"waiting for Spark to start tasks: {here} of {ranks} so far")
