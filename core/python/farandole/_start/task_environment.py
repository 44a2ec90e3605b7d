"""The environment of a cluster's task, and the part of it that ranks get."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

DRIVER_LOG = "FARANDOLE_DRIVER_LOG"
COMMIT_TARGET = "FARANDOLE_COMMIT_TARGET"


def around_agent(leave_out: Iterable[str], path: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for an agent in a task, which its ranks get as well.

    Args:
        leave_out: prefixes of names to leave out, such as those of the cluster's secrets.
        path: folders in which the task finds modules; the cluster may have added some.
        variables: variables that replace those of the task.
    """
    hidden = tuple(leave_out)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, path)), **variables}


def visible_gpus(addresses: Sequence[str]) -> dict[str, str]:
    """Return the variables that show these GPUs to the ranks of a host; empty if the cluster assigned none."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(addresses)} if addresses else {}


def driver_listens() -> bool:
    """Return whether a driver shows the marked lines of this rank."""
    return os.environ.get(DRIVER_LOG) == "1"


def commit_target() -> str:
    """Return the file that says where the cluster keeps this job's commits, or ""."""
    return os.environ.get(COMMIT_TARGET, "")
