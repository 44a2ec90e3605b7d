"""The text of `farandole run --dry-run`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from farandole.launch.job import Placement
from farandole.launch.messages import table


def preview(placements: Sequence[Placement], command: Sequence[str]) -> str:
    """A table with a line for each rank."""
    words = shlex.join(command)
    rows = [(str(each.rank), each.host, str(each.local_rank), words) for each in placements]
    return table([("rank", "host", "local rank", "command"), *rows])
