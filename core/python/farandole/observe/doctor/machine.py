"""Platform, Python, the kernel calls that shared memory needs, who we are and in what container."""

from __future__ import annotations

import fcntl
import os
import platform
import pwd
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.observe.doctor.finding import Finding, fail, ok, warn

OLDEST_PYTHON = (3, 10)
MACHINES = ("x86_64", "aarch64")
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK


@dataclass(frozen=True)
class Facts:
    """An error text is "" where the call works."""

    system: str
    machine: str
    kernel: str
    python: tuple[int, int, int]
    implementation: str
    executable: str
    memfd_error: str
    pidfd_error: str
    uid: int
    user: str  # "" where the user id has no name
    container: str  # "" where none was noticed


def gather(environment: Mapping[str, str]) -> Facts:
    """Ask this machine."""
    uname = os.uname()
    return Facts(
        system=uname.sysname,
        machine=uname.machine,
        kernel=uname.release,
        python=sys.version_info[:3],
        implementation=platform.python_implementation(),
        executable=sys.executable,
        memfd_error=_memfd_error(),
        pidfd_error=_pidfd_error(),
        uid=os.getuid(),
        user=_user_name(),
        container=container(environment),
    )


def container(environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Which container this looks like, from its usual traces; "" for none."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "a Kubernetes pod"
    if (root / ".dockerenv").exists():
        return "a Docker container"
    if (root / "run/.containerenv").exists():
        return "a Podman container"
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "an Apptainer container"
    return ""


def _memfd_error() -> str:
    try:
        descriptor = os.memfd_create("farandole-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return error.strerror or str(error)
    try:
        os.ftruncate(descriptor, 4096)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        os.close(descriptor)
    return ""


def _pidfd_error() -> str:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def judge(facts: Facts) -> list[Finding]:
    """Facts of the machine -> findings."""
    return [_platform(facts), _python(facts), _memfd(facts), _shm(), _pidfd(facts), _user(facts), _container(facts)]


def _platform(facts: Facts) -> Finding:
    text = f"{facts.system} {facts.kernel} on {facts.machine}"
    if facts.system == "Linux" and facts.machine in MACHINES:
        return ok("platform", text)
    return fail("platform", text, "Farandole runs on Linux on x86-64 or aarch64 only: use such a machine or container.")


def _python(facts: Facts) -> Finding:
    text = f"{facts.implementation} {'.'.join(map(str, facts.python))}, {facts.executable}"
    if facts.implementation != "CPython":
        return fail("python", text, "Farandole's wheels are for CPython: install it and reinstall Farandole there.")
    if facts.python < OLDEST_PYTHON:
        return fail("python", text, "Install Python 3.10 or newer and reinstall Farandole there.")
    return ok("python", text)


def _memfd(facts: Facts) -> Finding:
    if not facts.memfd_error:
        return ok("memfd", "anonymous shared memory can be made and sealed")
    return fail(
        "memfd",
        f"anonymous shared memory cannot be made: {facts.memfd_error}",
        "Allow memfd_create in the container's seccomp profile: the job's key and what ranks share live there.",
    )


def _shm() -> Finding:
    return ok("/dev/shm", "not used by Farandole: its size does not matter (a framework's data loaders may need it)")


def _pidfd(facts: Facts) -> Finding:
    if not facts.pidfd_error:
        return ok("pidfd", "the death of a rank is seen at once")
    return warn(
        "pidfd",
        f"pidfd_open does not work ({facts.pidfd_error}; Linux {facts.kernel}): ranks of this machine cannot share "
        "memory, and a death is noticed by closed connections only, seconds later where forked children keep them open",
        "Use Linux 5.3 or newer and allow pidfd_open in the container's seccomp profile.",
    )


def _user(facts: Facts) -> Finding:
    if facts.user:
        return ok("user", f"{facts.user} (uid {facts.uid}); all ranks of a machine must run as the same user")
    return warn(
        "user",
        f"uid {facts.uid} has no name in /etc/passwd: programs that ask for it fail, PyTorch's compiler among them",
        "Add the user to the container's /etc/passwd, or set USER and LOGNAME.",
    )


def _container(facts: Facts) -> Finding:
    if not facts.container:
        return ok("container", "none noticed")
    return ok(
        "container",
        f"{facts.container}: ranks in different containers of a machine share memory only where these share their "
        "network namespace and user ids, else they talk by TCP",
    )
