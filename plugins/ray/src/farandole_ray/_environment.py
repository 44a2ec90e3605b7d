"""The only file here that reads the environment: of the driver, of an actor, of a rank.

An actor gives the agent of its node, and so the ranks there:

    FARANDOLE_RAY_SOCKET   the abstract socket at which it hands out calls
    FARANDOLE_RAY_PYTHON   the Python of Ray's workers on that node
    FARANDOLE_RAY_FOLDER   their working directory
    FARANDOLE_NODE         Ray's id of the node: two on one machine are two hosts
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_SOCKET, _PYTHON, _FOLDER = (f"FARANDOLE_RAY_{name}" for name in ("SOCKET", "PYTHON", "FOLDER"))
_GPUS = "CUDA_VISIBLE_DEVICES"
_KEPT = ("FARANDOLE_", "HOROVOD_", "NCCL_", "LC_")
_KEPT_WHOLE = {"HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "TZ"}
_PROGRAM = "from farandole_ray._trainer import main"
COMMAND = ("sh", "-c", f'exec "${_PYTHON}" -c "{_PROGRAM}; main()"')


def of_launcher(extra: Mapping[str, str]) -> dict[str, str]:
    """Settings of ours, and no paths of this host, which would replace those of nodes."""
    kept = {name: each for name, each in os.environ.items() if name.startswith(_KEPT) or name in _KEPT_WHOLE}
    return {**kept, **extra}


def of_agent(socket: str, node: str, gpus: str) -> dict[str, str]:
    """That of the actor. Ray has hidden the GPUs of this node's other actors, and set the threads of one."""
    own = {name: value for name, value in os.environ.items() if name not in (_GPUS, "OMP_NUM_THREADS")}
    own |= {_GPUS: gpus} if gpus or _GPUS in os.environ else {}
    return {**own, _SOCKET: socket, _PYTHON: sys.executable, _FOLDER: os.getcwd(), "FARANDOLE_NODE": node}


def of_rank() -> tuple[int, str, str]:
    """Its number, which it keeps in an elastic job; the actor's socket; the working directory."""
    number = int(os.environ.get("FARANDOLE_JOINS") or os.environ["FARANDOLE_RANK"])
    return number, os.environ[_SOCKET], os.environ[_FOLDER]


def update(values: Mapping[str, str]) -> None:
    """Of this process."""
    os.environ.update(values)
