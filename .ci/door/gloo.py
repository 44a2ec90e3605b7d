"""libfarandole_gloo.so for the tests of that back end, built against the Gloo that the system's packages bring."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nox

from door import MADE, ROOT
from door.environments import build_environment
from door.progress import step

_HEADER = Path("/usr/include/gloo/config.h")


def gloo_variables(session: nox.Session) -> dict[str, str]:
    """Where the library is, as the core is told; nothing where Gloo cannot be had, so that its tests are skipped."""
    if not _HEADER.exists() and shutil.which("apt-get") and os.geteuid() == 0:
        with step("Fetching Gloo", "1 MB"):
            subprocess.run(["apt-get", "update", "-qq"], check=False)
            subprocess.run(["apt-get", "install", "-qq", "-y", "libgloo-dev"], check=False)
    if not _HEADER.exists():
        session.warn("Gloo is missing, its tests are skipped (Debian, Ubuntu: apt install libgloo-dev)")
        return {}
    env, build = build_environment(session), MADE / "build" / "gloo"
    with step("Building the library for Gloo", "some seconds"):
        env.run("cmake", "-S", str(ROOT / "core" / "gloo"), "-B", str(build), "-G", "Ninja", silent=True)
        env.run("cmake", "--build", str(build), silent=True)
    return {"FARANDOLE_GLOO_LIB": str(build / "libfarandole_gloo.so")}
