"""GoogleTest, Gloo and ssh, which the package index does not have: the system's, else from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import nox

from dev import MADE, ROOT
from dev.environments import build_environment
from dev.jobs import log, one_at_a_time, step
from dev.pins import GLOO_SOURCE

_GLOO_HEADER = Path("/usr/include/gloo/config.h")
_GTEST_HEADERS = (Path("/usr/include/gtest/gtest.h"), Path("/usr/local/include/gtest/gtest.h"))
# To install a server is to start it, and to open this machine to others.
_ONLY_UNPACKED = ("openssh-server", "libwrap0", "libnsl2")
_PROGRAMS_OF_LAB = {"ssh": "openssh-client", "ssh-keygen": "openssh-client", "ip": "iproute2", "tc": "iproute2"}


@one_at_a_time
def fetch(package: str, unpacked: Path | None = None) -> None:
    """Install the package; a plain user gets it unpacked into this folder, if one is named, and all get servers so."""
    if not shutil.which("apt-get"):
        return
    with step(f"Fetching {package}", "1 to 2 MB"):
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "update", "-qq"], stdout=log(), check=False)
        if os.geteuid() == 0 and package not in _ONLY_UNPACKED:
            command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", package]
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log(), check=False)
        elif unpacked:
            unpacked.mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", "-qq", package], cwd=unpacked, stdout=log(), check=False)
            for file in unpacked.glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(file), str(unpacked)], stdout=log(), check=False)


def find_gtest(session: nox.Session) -> list[str]:
    """How CMake finds GoogleTest: the system's, or unpacked ours; who has it elsewhere sets GTest_ROOT."""
    unpacked = MADE / "gtest"
    for attempt in range(2):
        if "GTest_ROOT" in os.environ or any(header.exists() for header in _GTEST_HEADERS):
            return []
        if (unpacked / "usr").exists():
            return [f"-DCMAKE_PREFIX_PATH={unpacked / 'usr'}"]
        if attempt == 0:
            fetch("libgtest-dev", unpacked)
    session.error(
        "GoogleTest is missing: install it (Debian, Ubuntu: apt install libgtest-dev; Fedora: dnf install gtest-devel)."
    )


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


def find_slurm() -> None:
    """The programs of a small Slurm, whose tests are skipped where they are missing."""
    if not shutil.which("srun"):
        for package in ("munge", "slurmctld", "slurmd", "slurm-client", "libpmix-dev"):
            fetch(package)


def find_chromium() -> None:
    """The browser for the live page, whose tests are skipped where there is none."""
    if not shutil.which("chromium"):
        fetch("chromium")


def find_java(session: nox.Session) -> None:
    """The Java that Spark runs on."""
    if not shutil.which("java"):
        fetch("default-jre-headless")
    if not shutil.which("java"):
        session.error("Java is missing: install it (Debian, Ubuntu: apt install default-jre-headless)")


def find_lab_programs(session: nox.Session) -> None:
    """The programs of labs of hosts (tests/support/lab.py), which skip their tests where one is missing."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    missing = [package for program, package in _PROGRAMS_OF_LAB.items() if not shutil.which(program, path=path)]
    for package in dict.fromkeys(missing):
        fetch(package)
    unpacked = MADE / "sshd"  # where lab_ssh.py looks, too
    if not shutil.which("sshd", path=path) and not (unpacked / "usr" / "sbin" / "sshd").exists():
        for package in _ONLY_UNPACKED:
            fetch(package, unpacked)
    wanted = [program for program in _PROGRAMS_OF_LAB if not shutil.which(program, path=path)]
    if not shutil.which("sshd", path=f"{path}:{unpacked / 'usr' / 'sbin'}"):
        wanted.append("sshd")
    if wanted:
        packages = "openssh-client openssh-server iproute2"
        session.warn(f"{', '.join(wanted)} missing, tests with several hosts are skipped (Debian, Ubuntu: {packages})")


def gloo_source(session: nox.Session) -> Path:
    """A folder with Gloo's sources: FARANDOLE_GLOO_SOURCE, else those of Debian's source package."""
    if given := os.environ.get("FARANDOLE_GLOO_SOURCE"):
        return Path(given).resolve()
    suite, version = GLOO_SOURCE
    home = MADE / "gloo-source" / version
    if not (home / "gloo").is_dir():
        with step("Fetching the sources of Gloo", "10 MB"):
            fetch_source(f"gloo={version}", suite, home)
    if not (home / "gloo").is_dir():
        session.error("Gloo's sources are missing: set FARANDOLE_GLOO_SOURCE to a folder with them")
    return home


def fetch_source(package: str, suite: str, target: Path) -> None:
    """Unpack the original archive of a source package, which apt compares with Debian's signed list of packages."""
    if not shutil.which("apt-get"):
        return
    lists, sources = MADE / "apt" / suite, MADE / "apt" / f"{suite}.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    fields = ["--format", "$(SITE) $(SIGNED_BY)", "Created-By: Packages", "Origin: Debian", "Component: main"]
    found = subprocess.run(["apt-get", "indextargets", *fields], capture_output=True, text=True, check=False).stdout
    site, _, key = (found.splitlines() or [" "])[0].partition(" ")
    signed = f"[signed-by={key}] " if key.startswith("/") else ""  # else by any key that apt trusts
    sources.write_text(f"deb-src {signed}{site} {suite} main\n")
    options = [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=/dev/null", f"Dir::State::lists={lists}"]
    options += ["Dir::Cache::srcpkgcache=", "Dir::Cache::pkgcache=", "APT::Sandbox::User="]
    apt = ["apt-get", "-qq", *(part for option in options for part in ("-o", option))]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for command in (["update"], ["source", "--download-only", "--tar-only", package]):
        subprocess.run([*apt, *command], cwd=target, stdout=log(), check=False)
    for archive in target.glob("*.orig.tar.*"):
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
