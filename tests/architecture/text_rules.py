"""Rules for every file: sizes, marks of unfinished work, links between documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from posixpath import normpath

from cpp_scan import functions
from tree import Source, line_of

MAX_FUNCTION_LINES = 80
MAX_FILE_LINES = 500
MAX_LINE_CHARACTERS = 120

_MARK = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
_LINK = re.compile(r"!?\[[^\]\n]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_FILE = re.compile(r"(?<![\w/.-])\w+\.(?:h|cc)\b")  # as comments name it, without its folder
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)


def long_files(files: Iterable[Source]) -> dict[str, int]:
    """path -> lines, where there are too many."""
    counts = {source.path: len(source.text.splitlines()) for source in files}
    return {path: count for path, count in counts.items() if count > MAX_FILE_LINES}


def long_functions(files: Iterable[Source]) -> dict[str, int]:
    """path::function -> lines, where there are too many; decorators do not count."""
    found = {}
    for source in files:
        for name, count in _function_lines(source):
            if count > MAX_FUNCTION_LINES:
                found[f"{source.path}::{name}"] = count
    return found


def _function_lines(source: Source) -> list[tuple[str, int]]:
    if source.path.endswith((".cc", ".h")):
        return [(function.name, function.line_count) for function in functions(source.text)]
    nodes = [node for node in ast.walk(source.tree()) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in nodes]


def wide_lines(files: Iterable[Source]) -> list[str]:
    """Lines with too many characters. clang-format leaves comments as they are; Python's are ruff's to judge."""
    found = []
    for source in files:
        for number, line in enumerate(source.text.splitlines(), 1):
            if len(line) > MAX_LINE_CHARACTERS:
                found.append(f"{source.path}:{number}: {len(line)} characters, {MAX_LINE_CHARACTERS} are allowed")
    return found


def size_violations(found: Mapping[str, int], exceptions: Mapping[str, str], limit: int) -> list[str]:
    """Lengths over the limit without a reason, and reasons without need."""
    unexcused = [
        f"{name}: {count} lines, {limit} are allowed" for name, count in found.items() if name not in exceptions
    ]
    needless = [f"{name}: is short enough, take it from exceptions.py" for name in exceptions if name not in found]
    silent = [f"{name}: say why in exceptions.py" for name, reason in exceptions.items() if not reason.strip()]
    return unexcused + needless + silent


def mark_violations(files: Iterable[Source]) -> list[str]:
    """Unfinished work stands in no comment: finish it, or write what is true."""
    found = []
    for source in files:
        for match in _MARK.finditer(source.text):
            found.append(f"{source.path}:{line_of(source.text, match.start())}: {match[0]}")
    return found


def stale_names(files: Iterable[Source], paths: Iterable[str]) -> list[str]:
    """A file that is named, outside the lines that include one, exists: moving it means renaming it there."""
    there = {path.rsplit("/", 1)[-1] for path in paths}
    return [
        f"{source.path}:{number}: there is no {name}"
        for source in files
        for number, line in enumerate(source.text.splitlines(), 1)
        for name in ([] if line.startswith("#include") else _FILE.findall(line))
        if name not in there
    ]


def slug(heading: str) -> str:
    """The anchor of a heading: `## Who may *know* whom?` -> who-may-know-whom."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {slug(match[1]) for match in re.finditer(r"^#+\s+(.*)$", _FENCE.sub("", text), re.MULTILINE)}


def link_violations(files: Iterable[Source], root: Path) -> list[str]:
    """Every link to a file of ours leads somewhere, anchors included."""
    found = []
    for source in files:
        text = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source.text)
        for match in _LINK.finditer(text):
            target, _, anchor = match["target"].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            path = normpath(f"{source.path}/../{target}") if target else source.path
            where = f"{source.path}:{line_of(text, match.start())}"
            if path.startswith("..") or not (root / path).exists():
                found.append(f"{where}: leads nowhere: {match['target']}")
            elif anchor and path.endswith(".md") and anchor not in anchors((root / path).read_text(encoding="utf-8")):
                found.append(f"{where}: no such heading: {match['target']}")
    return found
