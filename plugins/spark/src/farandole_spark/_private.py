"""The uses of PySpark that it does not promise. Checked on PySpark 3.5 to 4.3; others count no slots, at worst.

| name | what for | where |
|---|---|---|
| `SparkContext._jsc` | the JVM's context, which counts slots, as before a barrier stage | here |
"""

from __future__ import annotations

from typing import Any


def slots_of(context: Any) -> int | None:
    """The tasks that a cluster can run at the same time, as Spark's own check of barrier stages counts them.

    None where this Spark does not tell.
    """
    try:
        scala = context._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # Py4J's errors, which have no common class beside this
        return None
