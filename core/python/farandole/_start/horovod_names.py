"""A rank's place under the names of Horovod's variables, which data loaders and other tools read. Pure."""

from __future__ import annotations

from typing import Protocol

MARK = "HOROVOD_SET_BY"  # beside them, with our name: horovodrun has not set them


class Place(Protocol):
    """The six numbers of a rank."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def cross_rank(self) -> int: ...
    @property
    def cross_size(self) -> int: ...


def horovod_variables(place: Place, host: str) -> dict[str, str]:
    """HOROVOD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _CROSS_RANK, _CROSS_SIZE and _HOSTNAME of a rank, and the mark."""
    numbers = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    variables = {f"HOROVOD_{name.upper()}": str(getattr(place, name)) for name in numbers}
    return {**variables, "HOROVOD_HOSTNAME": host, MARK: "farandole"}
