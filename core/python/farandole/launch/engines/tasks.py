"""An engine whose tasks have agents already, and connect them to a hub of the caller: Spark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from farandole.launch.engines import Engine

_WAY = Path(__file__).parents[1] / "remote" / "way.py"
_TRAVELS = ("FARANDOLE_", "HOROVOD_", "NCCL_")
_STAYS = ("FARANDOLE_RUN_", "FARANDOLE_ADDRESS", "FARANDOLE_SSH", "FARANDOLE_TIMELINE")


def engine(name: str, hub: str) -> Engine:
    """The engine of this name. `hub`: the abstract name of the Unix socket where ways ask for an agent."""
    return Engine(lambda _environ: None, name, partial(_command, hub), has_agents=True)


def _command(hub: str, host: str, _words: list[str]) -> list[str]:
    return [sys.executable, "-I", "-S", str(_WAY), hub, host]


def variables(base: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables of the driver that travel to tasks: our own settings, and those that were given for the ranks."""
    own = {name: value for name, value in base.items() if name.startswith(_TRAVELS) and not name.startswith(_STAYS)}
    return {**own, **given}
