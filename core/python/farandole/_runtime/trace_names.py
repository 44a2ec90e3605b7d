"""Names of the files and objects of a rank's timeline."""

from __future__ import annotations

import re
from pathlib import Path


def path_of(path: str, rank: int, size: int) -> str:
    """Return the file or URL of one rank. Raises ValueError if `path` does not name a file."""
    if not Path(path).name or path.endswith("://") or "\0" in path:
        raise ValueError(f"a timeline needs the name of a file, such as 'trace.json', not {path!r}")
    return path if size == 1 else marked(path, f"rank{rank}")


def marked(path: str, mark: str) -> str:
    """Insert a mark before the suffix: trace.json -> trace.rank0.json."""
    folder, slash, name = path.rstrip("/").rpartition("/")
    return f"{folder}{slash}{Path(name).stem}.{mark}{Path(name).suffix}"


def shown(url: str) -> str:
    """Remove the user and password from a URL."""
    return re.sub(r"//[^/@]*@", "//", url)
