"""How large and how commented the core is, in figures. `python3 tests/architecture/measures.py` prints them.

A figure may get better, never worse: WORST holds the last value of each. A change that improves one updates it there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from posixpath import dirname

from cpp_scan import class_functions, functions, without_comments
from tree import Source, cpp_sources

SMALL_FILE_LINES = 60
LARGE_FILE_LINES = 500
MOST_CLASS_FUNCTIONS = 30
SOURCES = "core/src/"

# figure -> the most it may be
WORST: dict[str, float] = {
    "files": 191,
    "percent of files below 60 lines": 10,
    "files above 500 lines": 0,
    "lines of the longest function": 40,
    "folders that include each other in a circle": 0,
    "classes of more than 30 functions": 0,
}

# folder -> the least share of comments, in percent
LEAST_COMMENTS = {
    "algorithms": 28,
    "backends": 13,
    "collectives": 12,
    "common": 13,
    "controller": 13,
    "device": 13,
    "engine": 13,
    "reduce": 13,
    "transport": 15,
    "world": 13,
}

# figure -> what it is to become
GOALS = {
    "files": 190,
    "percent of files below 60 lines": 10,
    "files above 500 lines": 0,
    "lines of the longest function": 40,
    "folders that include each other in a circle": 0,
    "classes of more than 30 functions": 0,
}

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def figures(files: Iterable[Source]) -> dict[str, float]:
    """figure -> value, of the files in core/src."""
    files = [source for source in files if source.path.startswith(SOURCES)]
    lines = [len(source.text.splitlines()) for source in files]
    small = sum(count < SMALL_FILE_LINES for count in lines)
    return {
        "files": len(files),
        "percent of files below 60 lines": round(100 * small / max(1, len(files)), 1),
        "files above 500 lines": sum(count > LARGE_FILE_LINES for count in lines),
        "lines of the longest function": max((longest for longest, _ in function_lines(files)), default=0),
        "folders that include each other in a circle": len(circles(files)),
        "classes of more than 30 functions": len(large_classes(files)),
    }


def function_lines(files: Iterable[Source]) -> list[tuple[int, str]]:
    return [(each.line_count, f"{source.path}::{each.name}") for source in files for each in functions(source.text)]


def large_classes(files: Iterable[Source]) -> dict[str, int]:
    """Class -> member functions, where there are too many."""
    counts = {f"{source.path}::{name}": n for source in files for name, n in class_functions(source.text).items()}
    return {name: count for name, count in counts.items() if count > MOST_CLASS_FUNCTIONS}


def circles(files: Iterable[Source]) -> set[str]:
    """Folders from which a way of includes leads back to them."""
    known: dict[str, set[str]] = {}
    for source in files:
        here = dirname(source.path)
        for header in _INCLUDE.findall(without_comments(source.text)):
            known.setdefault(here, set()).add(dirname(SOURCES + header))
    return {folder for folder in known if folder in _reached(known, folder)}


def _reached(known: Mapping[str, set[str]], start: str) -> set[str]:
    """Other folders that `start` includes, and what they include."""
    found: set[str] = set()
    waiting = list(known[start] - {start})
    while waiting:
        folder = waiting.pop()
        if folder not in found:
            found.add(folder)
            waiting += known.get(folder, set()) - {folder}
    return found


def comments(files: Iterable[Source]) -> dict[str, tuple[int, float]]:
    """Folder below core/src -> lines of code, percent of comments among the lines of both."""
    counts: dict[str, tuple[int, int]] = {}
    for source in files:
        if source.path.startswith(SOURCES):
            folder = source.path.removeprefix(SOURCES).rpartition("/")[0].split("/")[0] or "."
            code = sum(bool(line.strip()) for line in without_comments(source.text).splitlines())
            written = sum(bool(line.strip()) for line in source.text.splitlines())
            before = counts.get(folder, (0, 0))
            counts[folder] = (before[0] + code, before[1] + written - code)
    return {folder: (code, 100 * lines / (code + lines)) for folder, (code, lines) in sorted(counts.items())}


def worse(found: Mapping[str, float], shares: Mapping[str, tuple[int, float]]) -> list[str]:
    """Figures that are worse than they were."""
    grown = [f"{what}: {found[what]:g}, it was {most:g}" for what, most in WORST.items() if found[what] > most]
    return grown + [
        f"comments in {folder}: {shares[folder][1]:.1f} %, they were {least} %"
        for folder, least in LEAST_COMMENTS.items()
        if folder in shares and shares[folder][1] < least
    ]


def report() -> str:
    files = [source for source in cpp_sources() if source.path.startswith(SOURCES)]
    lines = ["core/src", ""]
    for what, value in figures(files).items():
        lines.append(f"  {what:45} {value:7g}   at most {WORST[what]:g}, to become {GOALS[what]}")
    lines += ["", "  the longest functions"]
    lines += [f"    {count:4}  {name}" for count, name in sorted(function_lines(files), reverse=True)[:5]]
    lines += ["", f"  classes of more than {MOST_CLASS_FUNCTIONS} functions"]
    lines += [f"    {count:4}  {name}" for name, count in sorted(large_classes(files).items())]
    lines += ["", "  folders in a circle", *(f"    {folder}" for folder in sorted(circles(files)))]
    shares = comments(files)
    lines += ["", f"  lines of code: {sum(code for code, _ in shares.values())}; by folder, with the share of comments"]
    lines += [f"    {folder:12} {code:6}  {percent:5.1f} %" for folder, (code, percent) in shares.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
