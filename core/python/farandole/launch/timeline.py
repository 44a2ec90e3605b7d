"""One trace of the traces of all ranks.

Each of their events is on a line of its own, so one that was cut off is lost alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

_OF_RANK = re.compile(r"\.rank(\d+)$")


class TimelineError(ValueError):
    """What was asked for cannot be done; the message is one sentence for the user."""


def find(given: Sequence[Path]) -> list[Path]:
    """The ranks' files, by rank: those that are given, or those of the name that `--timeline-filename` had."""
    found: list[Path] = []
    for path in given:
        ranks = [each for each in path.parent.glob(f"{path.stem}.rank*{path.suffix}") if _rank(each) is not None]
        if not ranks and not path.is_file():
            raise TimelineError(f"there is neither {path} nor {path.stem}.rank0{path.suffix} beside it")
        found += ranks if ranks and _rank(path) is None else [path]
    return sorted(dict.fromkeys(found), key=lambda path: (_rank(path) or 0, path.name))


def default_output(files: Sequence[Path]) -> Path:
    """Where to merge them: trace.rank0.json and the like become trace.json."""
    first = files[0]
    return first.with_name(f"{_OF_RANK.sub('', first.stem)}{'' if _rank(first) is not None else '.all'}{first.suffix}")


def merge(files: Sequence[Path], output: TextIO) -> int:
    """Write the events of all files as one JSON array; returns how many there are."""
    count = 0
    output.write("[")
    for event in _events(files):
        output.write(",\n" if count else "\n")
        output.write(event)
        count += 1
    output.write("\n]\n")
    return count


def _events(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        with path.open(encoding="utf-8", errors="replace") as lines:
            if next(lines, "").strip()[:1] != "[":
                raise TimelineError(f"{path} is no timeline of Farandole: it does not begin with [")
            for line in lines:
                event = line.strip().removesuffix(",")
                if event not in ("", "]") and _is_whole(event):
                    yield event


def _is_whole(event: str) -> bool:
    try:
        return isinstance(json.loads(event), dict)
    except ValueError:
        return False


def _rank(path: Path) -> int | None:
    found = _OF_RANK.search(path.stem)
    return int(found[1]) if found else None
