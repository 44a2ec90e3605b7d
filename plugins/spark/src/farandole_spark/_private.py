"""Uses of private names of PySpark. Checked on PySpark 3.5 to 4.3. Without the first, slots are not counted.

| name | what for | where |
|---|---|---|
| `SparkContext._jsc` | the JVM's context, which counts slots, as before a barrier stage | here |
| `Params._dummy`, `_set`, `_setDefault`, `_resetUid` | parameters of estimators; meant for derived classes | here |
"""

from __future__ import annotations

from typing import Any, TypeVar

P = TypeVar("P")


def slots_of(context: Any) -> int | None:
    """Return how many tasks a cluster can run at once, as Spark counts them before a barrier stage.

    Returns None if this Spark does not tell.
    """
    try:
        scala = context._jsc.sc()
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Exception:  # Py4J's errors have no other common class
        return None


def __getattr__(name: str) -> Any:
    """Return `UNDEFINED`, the owner of a class's parameters. PySpark is imported only on demand."""
    if name == "UNDEFINED":
        from pyspark.ml.param import Params

        return Params._dummy()
    raise AttributeError(name)


def set_params(params: P, **values: Any) -> P:
    """Set parameters, and return `params`. Values of another type are converted, or raise a TypeError."""
    params._set(**values)  # type: ignore[attr-defined]
    return params


def set_defaults(params: Any, **values: Any) -> None:
    """Set the defaults of parameters."""
    params._setDefault(**values)


def reset_uid(params: Any, uid: str) -> None:
    """Give a loaded object the uid with which it was saved."""
    params._resetUid(uid)


def context_of(session: Any) -> Any:
    """Return what Spark ML's readers and writers of metadata take: a session since PySpark 4, before that a context."""
    import pyspark

    return session if int(pyspark.__version__.split(".")[0]) >= 4 else session.sparkContext
