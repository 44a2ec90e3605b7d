"""The uses of PySpark that it does not promise. Checked on PySpark 3.5 to 4.3; without the first no slots are counted.

| name | what for | where |
|---|---|---|
| `SparkContext._jsc` | the JVM's context, which counts slots, as before a barrier stage | here |
| `Params._dummy`, `_set`, `_setDefault`, `_resetUid` | parameters of estimators; meant for derived classes | here |
"""

from __future__ import annotations

from typing import Any, TypeVar

P = TypeVar("P")


def slots_of(context: Any) -> int | None:
    """The tasks that a cluster can run at the same time, as Spark's own check of barrier stages counts them.

    None where this Spark does not tell.
    """
    try:
        scala = context._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # Py4J's errors, which have no common class beside this
        return None


def __getattr__(name: str) -> Any:
    """`UNDEFINED`, the owner of a parameter that a class declares; PySpark is imported by those who ask for it."""
    if name == "UNDEFINED":
        from pyspark.ml.param import Params

        return Params._dummy()
    raise AttributeError(name)


def set_params(params: P, **values: Any) -> P:
    """Set parameters; a value of another type is converted, or a TypeError. Returns `params`."""
    params._set(**values)  # type: ignore[attr-defined]
    return params


def set_defaults(params: Any, **values: Any) -> None:
    """Set what parameters are where nothing is set."""
    params._setDefault(**values)


def reset_uid(params: Any, uid: str) -> None:
    """Give what was loaded the name that it was saved with."""
    params._resetUid(uid)


def context_of(session: Any) -> Any:
    """What Spark ML's readers and writers of metadata take: a session from PySpark 4 on, before a context."""
    import pyspark

    return session if int(pyspark.__version__.split(".")[0]) >= 4 else session.sparkContext
