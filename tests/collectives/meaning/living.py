"""Living ranks: the suites of this folder send their work to shared worlds, and change settings between two of them.

A spawn costs half a second, leaving a world and joining it with other settings some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import farandole
import farandole.numpy as fnp

Settings = Mapping[str, str]
MODES = ("shared", "tcp", "mixed")

Members = tuple[int, ...]

sets: dict[Members, Any] = {}  # the process sets beside the world
_present: dict[str, str] = {}  # what this rank's last init() has read


def modes(ranks: int) -> tuple[str, ...]:
    """The modes that differ in a world of this size: mixed has one group of several ranks and others alone."""
    return MODES[: min(ranks, 3)]


def settings_of(mode: str, ranks: int, alone: Sequence[int] = ()) -> list[Settings]:
    """By rank. In the mode "mixed" the ranks `alone` share no memory, by default the first one."""
    without = {"shared": (), "tcp": range(ranks), "mixed": alone or (0,)}[mode]
    return [{"FARANDOLE_ARENAS": "0"} if rank in without else {} for rank in range(ranks)]


def place() -> int:
    """This rank's number, in or out of the world."""
    return int(os.environ["FARANDOLE_RANK"])


def settle(settings: Sequence[Settings] | Settings) -> None:
    """On a rank: join the world with these settings and no others, anew where others hold. Every rank calls it."""
    mine = settings if isinstance(settings, Mapping) else settings[place()]
    wanted = {"FARANDOLE_TIMEOUT": "30", **mine}
    # Ranks must decide alike whether to leave, since the others would wait for one that stays.
    everybody = repr(settings)
    if _present.get("everybody") == everybody and farandole.is_initialized():
        return
    _leave()
    os.environ.update(wanted)
    _present.update(wanted, everybody=everybody)
    farandole.init()


def unsettle() -> None:
    """On a rank: join the world without settings of ours. Every rank calls it."""
    if _present:
        _leave()
        farandole.init()


def _leave() -> None:
    if farandole.is_initialized():
        farandole.barrier()  # others may still be busy with an operation of a process set without this rank
    farandole.shutdown()
    for name in _present:
        os.environ.pop(name, None)
    _present.clear()


def change_sets(wanted: list[Members]) -> None:
    """Remove the process sets that are not wanted, and add those that are not there."""
    for members in [members for members in sets if members not in wanted]:
        fnp.remove_process_set(sets.pop(members))
    for members in wanted:
        if members not in sets:
            sets[members] = fnp.add_process_set(list(members))
