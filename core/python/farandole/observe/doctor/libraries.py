"""CUDA's driver: where it lies, found without loading it into this process.

The libraries of the backends are looked for by the core itself (build.py), which may find them in other places.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.observe.doctor.finding import Finding, ok, warn

DRIVER = r"libcuda\.so\.1"
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig")


@dataclass(frozen=True)
class Facts:
    """The libraries and their places."""

    drivers: tuple[str, ...]  # the one that the linker prefers first
    gpus: tuple[str, ...]  # the driver's device files


def gather(environment: Mapping[str, str]) -> Facts:
    """Look through LD_LIBRARY_PATH and the linker's cache."""
    folders = [Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    files = [*_files_in(folders), *_linker_cache()]
    gpus = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    return Facts(matching(files, DRIVER), tuple(gpus))


def matching(files: Iterable[str], pattern: str) -> tuple[str, ...]:
    """The paths whose last part matches, each once: links to the same file count once."""
    found: dict[str, str] = {}
    for file in files:
        if re.fullmatch(pattern, Path(file).name):
            found.setdefault(str(Path(file).resolve()), file)
    return tuple(found.values())


def _files_in(folders: Iterable[Path]) -> list[str]:
    return [str(file) for folder in folders if folder.is_dir() for file in sorted(folder.glob("lib*.so*"))]


def _linker_cache() -> list[str]:
    for program in _LDCONFIG:
        try:
            answer = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        return [line.rpartition(" => ")[2].strip() for line in answer.splitlines() if " => " in line]
    return []


def judge(facts: Facts) -> list[Finding]:
    """The libraries and their places -> findings."""
    paths, check = ", ".join(facts.drivers), "CUDA driver"
    if facts.gpus and not paths:
        text = f"{len(facts.gpus)} NVIDIA GPU(s) are here, but no libcuda.so.1"
        return [warn(check, text, "Install the driver's user library; in a container, start it with --gpus all.")]
    if paths and not facts.gpus:
        return [ok(check, f"{paths}, but no GPU is visible")]
    return [ok(check, f"{paths}, {len(facts.gpus)} GPU(s)" if paths else "not found; needed for GPU tensors only")]
