"""The options of `farandole bench` -> the command of its ranks. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from farandole.launch.placement import JobError

DEFAULT_SIZES = "4,1K,16K,64K,256K,1M,4M,16M,64M"
MOST_BYTES = 64 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[KMG]?)", re.IGNORECASE)


def parse_sizes(text: str) -> list[int]:
    """`4,64K,1M` -> bytes."""
    return [_parse_size(word.strip()) for word in text.split(",")]


def _parse_size(word: str) -> int:
    match = _SIZE.fullmatch(word)
    if match is None:
        raise JobError(f"--sizes wants bytes with K, M or G for powers of 1024, as in 4,64K,1M, not {word!r}.")
    size = int(match["number"]) * _UNITS[match["unit"].upper()]
    if size == 0 or size % 4:
        raise JobError(f"a size must be a positive multiple of 4 bytes, the size of a float32, not {word!r}.")
    if size > MOST_BYTES:
        raise JobError(f"a size may be 64G at most, not {word!r}.")
    return size


def command(operation: str, sizes: Sequence[int], seconds: float, json_path: str | None) -> list[str]:
    """The command that each rank executes."""
    options = ["--operation", operation, "--seconds", f"{seconds:g}", "--sizes", *map(str, sizes)]
    if json_path is not None:
        options += ["--json", json_path]
    return [sys.executable, "-m", "farandole.benchmark", *options]
