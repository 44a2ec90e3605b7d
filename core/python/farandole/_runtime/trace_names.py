"""The files and objects of a rank's timeline."""

from __future__ import annotations

import re
from pathlib import Path


def path_of(path: str, rank: int, size: int) -> str:
    """The file or URL of one rank. Raises ValueError for what names no file."""
    if not Path(path).name or path.endswith("://") or "\0" in path:
        raise ValueError(f"a timeline needs the name of a file, such as 'trace.json', not {path!r}")
    return path if size == 1 else marked(path, f"rank{rank}")


def marked(path: str, mark: str) -> str:
    """`path` with a mark before its suffix: trace.json -> trace.rank0.json."""
    folder, slash, name = path.rstrip("/").rpartition("/")
    return f"{folder}{slash}{Path(name).stem}.{mark}{Path(name).suffix}"


def shown(url: str) -> str:
    """A URL without the password that it may hold."""
    return re.sub(r"//[^/@]*@", "//", url)
