"""A stage with its hub, and sentences about a wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import farandole
from farandole.engine import Call, Hub, Where

from farandole_spark._cluster import Cluster
from farandole_spark._stage import Stage
from farandole_spark._tasks import Plan

POLL_SECONDS = 0.2
_TELL_SECONDS = 5.0  # between two sentences about the same wait
_REASON_SECONDS = 3.0  # Spark tells why an executor is gone some time after its connections end


class Teller:
    """Writes a sentence where the user sees it: at once if it is new, else now and then."""

    def __init__(self, quiet_s: float = 1.0) -> None:
        self._said, self._due = "", time.monotonic() + quiet_s

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._said, self._due = sentence, now + _TELL_SECONDS
            print(f"farandole: {sentence}", file=sys.stderr, flush=True)


class Job:
    """A stage with its hub, from its start to the end of its last task."""

    def __init__(self, cluster: Cluster, hub: Hub, ranks: int, title: str, commits: Where | None = None) -> None:
        self._cluster, self._hub, self._ranks, self._title = cluster, hub, ranks, title
        self._commits = commits
        self._ended_well = False

    def __enter__(self) -> Job:
        try:
            self._hub.__enter__()
        except OSError as error:
            where = self._hub.bind or self._hub.address
            raise farandole.FarandoleError(
                f"the driver cannot listen at {where}, port {self._hub.port or 'any'} ({error.strerror}); give another "
                "driver_address or driver_port."
            ) from error
        try:
            has_threads = bool(self._cluster.setting("spark.executorEnv.OMP_NUM_THREADS"))
            plan = Plan(self._hub.endpoint, self._hub.key, has_threads, self._commits)
            self._stage: Stage = self._cluster.start(plan, self._ranks, self._title)
        except BaseException:
            self._hub.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._hub.__exit__()
        self._stage.end(at_once=not self._ended_well)

    def await_tasks(self, deadline: float) -> None:
        """Wait for all of them. Raises FarandoleError."""
        tell = Teller(_TELL_SECONDS)
        while not self._hub.wait(self._ranks, POLL_SECONDS):
            here = len(self._hub.tasks())
            if self._stage.is_over:
                why = self._stage.reason or "it ended before all of its tasks had begun"
                raise farandole.FarandoleError(f"Spark's stage has failed: {why}.")
            if time.monotonic() >= deadline:
                raise farandole.FarandoleError(
                    f"{here} of {self._ranks} tasks came to the driver at {'{}:{}'.format(*self._hub.endpoint)} within "
                    "the start timeout; free slots, or give a longer start_timeout."
                )
            tell(f"waiting for Spark to start tasks: {here} of {self._ranks} so far")

    def run(
        self,
        call: Call,
        env: Mapping[str, str] | None,
        options: Mapping[str, object],
        stdout: TextIO | None,
        stderr: TextIO | None,
    ) -> list[Any]:
        """Returns the results. Raises what `Call.run` does; a lost task comes with Spark's reason."""
        try:
            results = call.run(self._hub, "Spark", self._ranks, env=env, options=options, stdout=stdout, stderr=stderr)
        except farandole.FarandoleError as error:
            if type(error) is not farandole.FarandoleError or "lost" not in str(error):
                raise
            self._stage.await_end(_REASON_SECONDS)
            why = f" Spark says: {self._stage.reason}." if self._stage.reason else ""
            raise farandole.FarandoleError(f"{error}{why}") from None
        self._ended_well = True
        return results
