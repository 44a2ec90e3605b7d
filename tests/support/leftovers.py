"""Pytest plugin: leftovers of killed programs stay out of the way of later runs.

They bear the identifier of the killed process. Open MPI's mpirun, for one, refuses to start when it has the same one
and meets them. The conftest.py at the root loads this plugin.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

# In shared memory, of MPICH and of Open MPI: a rank that is killed leaves its own.
SEGMENTS = ("mpich_shm_*", "sm_segment.*")
FOLDER, BEFORE = pytest.StashKey[str](), pytest.StashKey[set[Path]]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this run a folder for temporary files. pytest's own folders stay, so that a failure can be examined."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    config.stash[BEFORE] = segments()
    config.stash[FOLDER] = tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="frd-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[FOLDER], ignore_errors=True)
    for path in segments() - config.stash[BEFORE]:
        path.unlink(missing_ok=True)


def segments() -> set[Path]:
    """Those that are ours and that no process of ours has mapped."""
    found = {path for pattern in SEGMENTS for path in Path("/dev/shm").glob(pattern)}
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps") if found else []:
        with contextlib.suppress(OSError):
            mapped += maps.read_text(errors="replace")
    with contextlib.suppress(FileNotFoundError):
        return {path for path in found if path.name not in mapped and path.stat().st_uid == os.getuid()}
    return set()
