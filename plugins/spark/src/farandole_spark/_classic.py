"""A cluster whose driver is this process. It uses RDDs and the JVM's counts."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from farandole_spark import _private
from farandole_spark._slots import Slots
from farandole_spark._stage import Part, Stage

_YOUNG_SECONDS = 30.0


@dataclass(frozen=True)
class Classic:
    """The cluster of a SparkContext."""

    context: Any

    def setting(self, name: str, otherwise: str = "") -> str:
        """Return a setting of Spark."""
        return str(self.context.getConf().get(name, otherwise) or otherwise)

    def slots(self) -> Slots:
        """Count the slots. The running tasks are those of active stages."""
        total = _private.slots_of(self.context)
        if total is None:
            return Slots(None, None)
        tracker = self.context.statusTracker()
        found = (tracker.getStageInfo(each) for each in tracker.getActiveStageIds())
        running = sum(stage.numActiveTasks for stage in found if stage is not None)
        is_young = time.time() - self.context.startTime / 1000 < _YOUNG_SECONDS
        return Slots(total, max(0, total - running), is_young)

    def addresses(self) -> tuple[str, str]:
        """Return the driver's address for executors, and the address to listen at."""
        return self.setting("spark.driver.host", "127.0.0.1"), self.setting("spark.driver.bindAddress")

    def start(self, part: Part, tasks: int, title: str) -> Stage:
        """Start a stage."""
        from pyspark import InheritableThread

        group = f"farandole-{uuid.uuid4().hex}"

        def job() -> None:
            self.context.setJobGroup(group, title, interruptOnCancel=True)
            stage = self.context.parallelize(range(tasks), tasks).barrier()
            stage.mapPartitions(part).collect()

        return Stage(job, partial(self.context.cancelJobGroup, group), InheritableThread)
