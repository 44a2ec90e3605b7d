"""Merges the traces of all ranks into one.

Each event is on its own line, so if a file was cut off, only its last event is lost.
"""

from __future__ import annotations

import glob
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_RUN = re.compile(r" of run (\w+)$")  # in the first event, which has the title of the rank
_MARK = re.compile(r"\.rank(\d+)(?=(\.[^.]*)?$)")  # before the suffix, if there is one


class TimelineError(ValueError):
    """The files cannot be merged as asked; the message is one sentence for the user."""


def find(given: Sequence[Path]) -> list[Path]:
    """Return the ranks' files, by rank: the given ones, or those of the name given as `--timeline-filename`.

    A file with that name itself leads to the file of rank 0, or is an earlier result, unless the job has one rank.
    """
    found: list[Path] = []
    for path in given:
        beside = path.parent.glob(f"{glob.escape(path.stem)}.*")
        more = [each for each in beside if _parsed(each)[1] is not None and _parsed(each)[0] == path]
        if not more and not path.is_file():
            raise TimelineError(f"there is neither {path} nor {path.stem}.rank0{path.suffix} beside it")
        is_of_them = _parsed(path)[1] is None and path.is_file() and _run(path) in map(_run, more)
        found += more if is_of_them or not path.is_file() else [path, *more]
    return sorted(dict.fromkeys(found), key=lambda path: (_parsed(path)[1] or 0, path.name))


def ranks_of(files: Sequence[Path]) -> int:
    """Return the number of ranks that wrote the files."""
    return len({_parsed(path) for path in files})


def of_one_run(files: Sequence[Path]) -> tuple[list[Path], str]:
    """Return the files of the latest run, and a sentence about the others, if there are any.

    A run with fewer ranks leaves the files of an earlier run's other ranks.
    """
    runs = {path: _run(path) for path in files}
    newest = max(files, key=lambda path: path.stat().st_mtime_ns)
    others = [path.name for path in files if runs[path] != runs[newest]]
    sentence = f"left out, because they are from another run than {newest.name}: {', '.join(others)}" if others else ""
    return [path for path in files if runs[path] == runs[newest]], sentence


def default_output(files: Sequence[Path]) -> Path:
    """Return the default output file, such as trace.json for trace.rank0.json."""
    whole, rank = _parsed(files[0])
    return whole.with_name(f"{whole.stem}.all{whole.suffix}") if rank is None else whole


def merge(target: Path, files: Sequence[Path]) -> int:
    """Write the events of all files as one JSON array, and return their number. A failure leaves no target."""
    unfinished, count = target.with_name(f".{target.name}.unfinished"), 0
    try:
        with unfinished.open("w", encoding="utf-8") as output:
            for count, event in enumerate(events(files), 1):
                output.write(f"{'[' if count == 1 else ','}\n{event}")
            output.write("\n]\n" if count else "[\n]\n")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def events(files: Iterable[Path]) -> Iterator[str]:
    """Yield the text of each complete event. Raises TimelineError, OSError."""
    for path in files:
        with path.open(encoding="utf-8", errors="replace") as lines:
            if next(lines, "").strip()[:1] != "[":
                raise TimelineError(f"{path} is no timeline of Farandole: it does not begin with [")
            for line in lines:
                event = line.strip().removesuffix(",").rstrip()
                if event not in ("", "]") and _is_whole(event):
                    yield event


def _run(path: Path) -> str | None:
    """Return the name of a file's run, or None if it has none, as the file of a single rank."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        event = next(itertools.islice(lines, 1, None), "").strip().removesuffix(",")
    title = json.loads(event).get("args", {}).get("name", "") if _is_whole(event) else ""
    found = _RUN.search(str(title))
    return found[1] if found else None


def _is_whole(event: str) -> bool:
    try:
        return isinstance(json.loads(event), dict)
    except ValueError:
        return False


def _parsed(path: Path) -> tuple[Path, int | None]:
    """Return the name without the mark, and the number of the rank."""
    found = _MARK.search(path.name)
    if found is None:
        return path, None
    return path.with_name(path.name[: found.start()] + path.name[found.end() :]), int(found[1])
