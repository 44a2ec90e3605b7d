"""GoogleTest, Gloo, ssh and the like, which the package index lacks: the system's, else from Debian's packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from shutil import which

import nox

from dev import MADE, ROOT
from dev.environments import build_environment
from dev.jobs import log, one_at_a_time, step

_GLOO_HEADER = Path("/usr/include/gloo/config.h")
_GTEST_HEADERS = (Path("/usr/include/gtest/gtest.h"), Path("/usr/local/include/gtest/gtest.h"))
# To install a server is to start it, and to open this machine to others.
_ONLY_UNPACKED = ("openssh-server", "libwrap0", "libnsl2")
_UNPACKED = MADE / "sshd"  # where lab_ssh.py looks, too
_LAB = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "ip": "iproute2", "tc": "iproute2"}
_LAB["sshd"] = " ".join(_ONLY_UNPACKED)
# What a path of tests starts with -> the programs that they need and skip tests without, and their packages.
NEEDED_PROGRAMS = {
    "tests/hosts": _LAB,
    "tests/hosts/test_slurm": {"srun": "munge slurmctld slurmd slurm-client"},
    "plugins/ray/tests/test_cluster": _LAB,
    "tests/page": {"chromium": "chromium"},
    "tests/spark": {"java": "default-jre-headless"},
}


@one_at_a_time
def fetch(package: str, unpacked: Path | None = None) -> None:
    """Unpack the package into this folder; without one, install it, which only root can."""
    if not which("apt-get"):
        return
    with step(f"Fetching {package}", "1 to 2 MB"):
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "update", "-qq"], stdout=log(), check=False)
        if unpacked:
            unpacked.mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", "-qq", package], cwd=unpacked, stdout=log(), check=False)
            for file in unpacked.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(file), str(unpacked)], stdout=log(), check=False)
        elif os.geteuid() == 0:
            command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", package]
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log(), check=False)


def find_gtest(session: nox.Session) -> list[str]:
    """How CMake finds GoogleTest: the system's, or unpacked ours; who has it elsewhere sets GTest_ROOT."""
    unpacked = MADE / "gtest"
    if "GTest_ROOT" in os.environ or any(header.exists() for header in _GTEST_HEADERS):
        return []
    if not (unpacked / "usr").exists():
        fetch("libgtest-dev", unpacked)
    if not (unpacked / "usr").exists():
        session.error(
            "GoogleTest is missing (Debian, Ubuntu: apt install libgtest-dev; Fedora: dnf install gtest-devel)"
        )
    return [f"-DCMAKE_PREFIX_PATH={unpacked / 'usr'}"]


@one_at_a_time
def gloo_variables(session: nox.Session) -> dict[str, str]:
    """Where libfarandole_gloo.so is, as the core is told; nothing where Gloo cannot be had: its tests are skipped."""
    if not _GLOO_HEADER.exists():
        fetch("libgloo-dev")
    if not _GLOO_HEADER.exists():
        session.warn("Gloo is missing, its tests are skipped (Debian, Ubuntu: apt install libgloo-dev)")
        return {}
    env, build = build_environment(session), MADE / "build" / "gloo"
    with step("Building the library for Gloo", "some seconds"):
        env.run("cmake", "-S", str(ROOT / "core" / "gloo"), "-B", str(build), "-G", "Ninja", silent=True)
        env.run("cmake", "--build", str(build), silent=True)
    return {"FARANDOLE_GLOO_LIB": str(build / "libfarandole_gloo.so")}


@one_at_a_time
def find_programs(session: nox.Session, what: str, programs: dict[str, str]) -> None:
    """Fetch the packages of those of the programs that are missing; warn if they are still."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", str(_UNPACKED / "usr" / "sbin")])
    for package in dict.fromkeys(" ".join(programs[each] for each in programs if not which(each, path=path)).split()):
        fetch(package, _UNPACKED if package in _ONLY_UNPACKED else None)
    missing = {program: package for program, package in programs.items() if not which(program, path=path)}
    if missing:
        packages = " ".join(dict.fromkeys(missing.values()))
        session.warn(f"{', '.join(missing)} missing, {what} cannot run all its tests (Debian, Ubuntu: {packages})")
