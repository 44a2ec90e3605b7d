"""The text of `farandole run --dry-run`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from farandole.launch.messages import table
from farandole.launch.placement import Placement


def preview(placements: Sequence[Placement], command: Sequence[str], lines: Sequence[str] = ()) -> str:
    """A table with a line for each rank; after it, the lines of a job file, which replace the command."""
    if lines:
        places = [(str(each.rank), each.host, str(each.local_rank)) for each in placements]
        steps = [(str(number), line) for number, line in enumerate(lines, 1)]
        both = table([("rank", "host", "local rank"), *places]), table([("line", "command of all ranks"), *steps])
        return "\n\n".join(both)
    words = shlex.join(command)
    rows = [(str(each.rank), each.host, str(each.local_rank), words) for each in placements]
    return table([("rank", "host", "local rank", "command"), *rows])
