"""Names of the files of a timeline."""

from __future__ import annotations

from pathlib import Path

_LOCAL = ("file://", "local://")


def file_of(path: str) -> str:
    """Return the user's name of the file, without the scheme of a local file. Raises ValueError."""
    for scheme in _LOCAL:
        path = path.removeprefix(scheme)
    if not Path(path).name or "\0" in path:
        raise ValueError(f"a timeline needs the name of a file, such as 'trace.json', not {path!r}")
    if "://" in path:
        raise ValueError(
            f"a timeline is written to a file, not to a URL such as {path!r}: use a path on shared storage"
        )
    return path


def path_of(path: str, rank: int, size: int) -> str:
    """Return the file of one rank: trace.rank0.json for trace.json. A job of one rank keeps the name."""
    if size == 1:
        return path
    file = Path(path)
    return str(file.with_name(f"{file.stem}.rank{rank}{file.suffix}"))
