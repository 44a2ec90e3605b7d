"""CUDA's driver: where it lies, found without loading it into this process.

The libraries of the backends are looked for by the core itself (build.py), which may find them in other places.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from farandole.launch import gpus
from farandole.observe.doctor.finding import Finding, ok, warn

_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig")


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Look through LD_LIBRARY_PATH and the linker's cache."""
    return [cuda_driver(drivers(environment.get("LD_LIBRARY_PATH", "")), gpus.count(environment))]


def drivers(library_path: str) -> list[str]:
    """The paths of the driver, the one that the linker prefers first; links to the same file count once."""
    files = [str(Path(folder, "libcuda.so.1")) for folder in library_path.split(":") if folder]
    files += re.findall(r" => (\S+/libcuda\.so\.1)$", _linker_cache(), re.MULTILINE)
    found: dict[Path, str] = {}
    for file in files:
        if Path(file).exists():
            found.setdefault(Path(file).resolve(), file)
    return list(found.values())


def _linker_cache() -> str:
    for program in _LDCONFIG:
        try:
            return subprocess.run([program, "-p"], capture_output=True, text=True, timeout=10, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
    return ""


def cuda_driver(paths: list[str], visible: int) -> Finding:
    """`visible`: how many GPUs ranks would see."""
    check, text = "CUDA driver", ", ".join(paths)
    if not paths and visible:
        text = f"{visible} NVIDIA GPU(s) are here, but no libcuda.so.1"
        return warn(check, text, "Install the driver's user library; in a container, start it with --gpus all.")
    if not paths:
        return ok(check, "not found; needed for GPU tensors only")
    return ok(check, f"{text}, {visible} GPU(s)" if visible else f"{text}, but no GPU is visible")
