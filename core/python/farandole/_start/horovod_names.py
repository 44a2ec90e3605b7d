"""The variables that hold a rank's place: ours, and those of Horovod, which data loaders and other tools read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

NUMBERS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
MARK = "HOROVOD_SET_BY"  # beside them, with our name: horovodrun has not set them


def place_variables(prefix: str, place: Mapping[str, object]) -> dict[str, str]:
    """The six numbers of a rank's place: `prefix`_RANK, _SIZE, _LOCAL_RANK and so on."""
    return {f"{prefix}_{name.upper()}": str(place[name]) for name in NUMBERS}


def horovod_variables(place: Mapping[str, object], host: str) -> dict[str, str]:
    """The variables of Horovod, with HOROVOD_HOSTNAME and the marker."""
    return {**place_variables("HOROVOD", place), "HOROVOD_HOSTNAME": host, MARK: "farandole"}
