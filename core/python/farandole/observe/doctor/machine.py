"""Checks platform, Python, the system calls for shared memory, the user, the container, and CUDA's driver."""

from __future__ import annotations

import os
import platform as this_platform
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from farandole.launch import gpus, local
from farandole.observe.doctor.finding import Finding, error_of, fail, fail_unless, ok, warn, warn_unless

OLDEST_PYTHON = (3, 10)
MACHINES = ("x86_64", "aarch64")
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig")


def check(environment: Mapping[str, str]) -> list[Finding]:
    """Check this machine."""
    uname = os.uname()
    return [
        platform(uname.sysname, uname.release, uname.machine),
        python(this_platform.python_implementation(), sys.version_info[:3], sys.executable),
        memfd(error_of(lambda: os.close(local.make_key()))),
        pidfd(error_of(lambda: os.close(os.pidfd_open(os.getpid()))), uname.release),
        user(os.getuid(), _user_name()),
        container(container_of(environment)),
        cuda_driver(drivers(environment.get("LD_LIBRARY_PATH", "")), gpus.count(environment)),
    ]


def container_of(environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Return the kind of container, from its usual traces, or ""."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "a Kubernetes pod"
    if (root / ".dockerenv").exists():
        return "a Docker container"
    if (root / "run/.containerenv").exists():
        return "a Podman container"
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "an Apptainer container"
    return ""


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def drivers(library_path: str) -> list[str]:
    """Return the paths of CUDA's driver in LD_LIBRARY_PATH and the linker's cache, the preferred one first.

    Links count once. The driver is not loaded. The core itself looks for libraries of backends (build.py).
    """
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


def platform(system: str, kernel: str, machine: str) -> Finding:
    """Assess the names that uname(2) returns."""
    text = f"{system} {kernel} on {machine}"
    fix = "Farandole runs on Linux on x86-64 or aarch64 only: use such a machine or container."
    return fail_unless(system == "Linux" and machine in MACHINES, "platform", text, fix)


def python(implementation: str, version: tuple[int, int, int], executable: str) -> Finding:
    """Assess the interpreter."""
    text = f"{implementation} {'.'.join(map(str, version))}, {executable}"
    if implementation != "CPython":
        return fail("python", text, "Farandole's wheels are for CPython: install it and reinstall Farandole there.")
    fix = "Install Python 3.10 or newer and reinstall Farandole there."
    return fail_unless(version >= OLDEST_PYTHON, "python", text, fix)


def memfd(error: str) -> Finding:
    """Assess the attempt to create memory as the launcher does for the job's key."""
    bad = f"anonymous shared memory cannot be made: {error}"
    fix = "Allow memfd_create in the container's seccomp profile: the job's key and what ranks share live there."
    return fail_unless(not error, "memfd", "anonymous shared memory can be made and sealed", fix, bad)


def pidfd(error: str, kernel: str) -> Finding:
    """Assess the attempt to call pidfd_open."""
    bad = (
        f"pidfd_open does not work ({error}; Linux {kernel}): ranks of this machine cannot share memory, and a death "
        "is noticed by closed connections only, seconds later where forked children keep them open"
    )
    fix = "Use Linux 5.3 or newer and allow pidfd_open in the container's seccomp profile."
    return warn_unless(not error, "pidfd", "the death of a rank is seen at once", fix, bad)


def user(uid: int, name: str) -> Finding:
    """Assess the user. `name` is "" if the user id has none."""
    text = f"{name} (uid {uid}); all ranks of a machine must run as the same user"
    bad = f"uid {uid} has no name in /etc/passwd: programs that ask for it fail, PyTorch's compiler among them"
    return warn_unless(
        bool(name), "user", text, "Add the user to the container's /etc/passwd, or set USER and LOGNAME.", bad
    )


def container(kind: str) -> Finding:
    """Report the kind of container, or ""."""
    if not kind:
        return ok("container", "none noticed")
    return ok(
        "container",
        f"{kind}: ranks in different containers of a machine share memory only where these share their network "
        "namespace and user ids, else they talk by TCP",
    )


def cuda_driver(paths: list[str], visible: int) -> Finding:
    """Assess CUDA's driver. `visible` is the number of GPUs that ranks would see."""
    check, text = "CUDA driver", ", ".join(paths)
    if not paths and visible:
        text = f"{visible} NVIDIA GPU(s) are here, but no libcuda.so.1"
        return warn(check, text, "Install the driver's user library; in a container, start it with --gpus all.")
    if not paths:
        return ok(check, "not found; needed for GPU tensors only")
    return ok(check, f"{text}, {visible} GPU(s)" if visible else f"{text}, but no GPU is visible")
