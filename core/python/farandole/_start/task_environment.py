"""The environment of a task of an engine, and what its ranks see of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

DRIVER_LOG = "FARANDOLE_DRIVER_LOG"
COMMIT_TARGET = "FARANDOLE_COMMIT_TARGET"


def around_agent(leave_out: Iterable[str], path: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of an agent in a task, which its ranks see.

    Args:
        leave_out: beginnings of names that stay out, as of the engine's secrets.
        path: where the task finds modules; its engine may have added to it.
        variables: that replace those of the task.
    """
    hidden = tuple(leave_out)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, path)), **variables}


def visible_gpus(addresses: Sequence[str]) -> dict[str, str]:
    """The variables that show these GPUs to the ranks of a host; none where the engine gave it none."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(addresses)} if addresses else {}


def driver_listens() -> bool:
    """Returns whether a driver shows the lines of this rank that have a mark."""
    return os.environ.get(DRIVER_LOG) == "1"


def commit_target() -> str:
    """The file that says where the cluster keeps this job's commits; "" if it keeps none."""
    return os.environ.get(COMMIT_TARGET, "")
