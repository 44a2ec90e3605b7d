"""The limits that control groups, of version 2 or 1, set for this process."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def memory(proc: Path = PROC, groups: Path = GROUPS) -> tuple[float, int]:
    """Return the memory limit in bytes of the tightest group above this process, or inf; and that group's usage."""
    found = []
    for folder in _folders(proc, groups, "memory"):
        for limit_file, used_file in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = _number(folder / limit_file), _number(folder / used_file)
            if limit is not None and limit < 1 << 60:  # version 1 says "no limit" with a number near 2^63
                found.append((limit, used or 0))
    return min(found, key=lambda pair: pair[0] - pair[1], default=(inf, 0))


def cores(proc: Path = PROC, groups: Path = GROUPS) -> float:
    """Return the number of cores that the tightest group above this process grants; inf without a limit."""
    found = [inf]
    for folder in _folders(proc, groups, "cpu"):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            quota, period = str(_number(folder / "cpu.cfs_quota_us")), str(_number(folder / "cpu.cfs_period_us"))
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(int(quota) / int(period))
    return min(found)


def _folders(proc: Path, groups: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's group and of those above it. A container mounts its own group at the top."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        tops = [groups / controller] if names else [groups, groups / "unified"]
        for top in tops:
            here = top / path.lstrip("/")
            yield from (folder for folder in (here, *here.parents) if folder.is_relative_to(top))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
