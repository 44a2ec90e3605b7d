"""Names of the variables with a rank's place: ours, and Horovod's, which data loaders and other tools read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

NUMBERS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
MARK = "HOROVOD_SET_BY"  # set with our name, so that Horovod's variables are not mistaken for those of horovodrun


def place_variables(prefix: str, place: Mapping[str, object]) -> dict[str, str]:
    """Return the six variables of a rank's place: `prefix`_RANK, _SIZE, _LOCAL_RANK and so on."""
    return {f"{prefix}_{name.upper()}": str(place[name]) for name in NUMBERS}


def horovod_variables(place: Mapping[str, object], host: str) -> dict[str, str]:
    """Return Horovod's variables, with HOROVOD_HOSTNAME and the marker."""
    return {**place_variables("HOROVOD", place), "HOROVOD_HOSTNAME": host, MARK: "farandole"}
