"""Farandole on Ray: ranks that a Ray cluster places.

from farandole_ray import RayExecutor          Horovod's names: start, run, execute, shutdown
from farandole_ray import FarandoleConfig      a back end for Ray Train's DataParallelTrainer and TorchTrainer

_executor    the public class
_discovery   the cluster's nodes, by Horovod's names
_request     what Ray is asked for                                          (pure)
_actors      Ray's actors that hold it
_actor       such an actor: a task of farandole.engine, calls for the ranks of its node
_job         the launcher of the job, in a thread of the driver
_trainer     the functions that ranks call; _log: their values for callbacks on the driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-ray")  # refuses a core that does not fit, before anything is missing in it
from farandole_ray._log import log

if TYPE_CHECKING:
    from farandole_ray._executor import RayExecutor
    from farandole_ray._settings import Settings
    from farandole_ray._train import FarandoleConfig


__all__ = ["FarandoleConfig", "RayExecutor", "Settings", "log"]


def __getattr__(name: str) -> Any:
    """At the first use: ranks import this package, too, and need no Ray; the executor needs no Ray Train."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import ray
    except ImportError:
        what = "ray[train]" if name == "FarandoleConfig" else "ray"
        raise ImportError(f"{__name__}.{name} needs Ray: python -m pip install '{what}'", name="ray") from None
    assert ray
    if name == "FarandoleConfig":
        from farandole_ray import _train

        return _train.FarandoleConfig
    from farandole_ray import _executor

    return getattr(_executor, name)
