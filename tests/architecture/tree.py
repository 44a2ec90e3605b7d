"""The files that the rules judge. A rule is a function from sources to sentences, one for each violation."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Looked at only where there is no git to ask, as in an unpacked archive.
_NEVER_TRACKED = {".git", ".nox", "build", "_skbuild", "dist", "__pycache__"}


@dataclass(frozen=True)
class Source:
    path: str  # relative to the root, with /
    text: str

    def tree(self) -> ast.Module:
        return _parse(self.text)


@cache  # many rules read each file
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


Plant = Callable[[dict[str, str]], list[Source]]  # what the fixture `plant` is


def tracked_paths(root: Path) -> list[str]:
    """The files of the tree that belong to it, sorted."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "-c", f"safe.directory={root}", "ls-files", "-z"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return sorted(path for path in answer.split("\0") if path and (root / path).is_file())
        except (OSError, subprocess.CalledProcessError):
            pass  # no git here
    paths = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return sorted(path.as_posix() for path in paths if not _NEVER_TRACKED.intersection(path.parts))


def sources(root: Path, *patterns: str) -> list[Source]:
    """The tracked files that match a pattern; `*` in it matches `/`, too."""
    paths = [path for path in tracked_paths(root) if any(fnmatchcase(path, pattern) for pattern in patterns)]
    return [Source(path, (root / path).read_text(encoding="utf-8", errors="replace")) for path in paths]


def cpp_sources(root: Path = ROOT) -> list[Source]:
    return sources(root, "*.cc", "*.h")


def python_sources(root: Path = ROOT) -> list[Source]:
    return sources(root, "*.py", "*.pyi")


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
