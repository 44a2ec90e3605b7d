"""What killed programs leave behind is in no later run's way."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
# Of MPICH and of Open MPI: a rank that is killed leaves its own.
SEGMENTS = ("mpich_shm_*", "sm_segment.*")


@contextlib.contextmanager
def own_folder() -> Iterator[dict[str, str]]:
    """The variables of tests that have a folder of their own for temporary files, which goes afterwards.

    What a killed program leaves there bears its process identifier: a later one of the same identifier meets it, and
    Open MPI's mpirun, for one, refuses to start then. pytest's own folders stay for whoever looks for a fault.
    """
    before = segments()
    kept = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    try:
        with tempfile.TemporaryDirectory(prefix="frd-", ignore_cleanup_errors=True) as place:
            yield {"TMPDIR": place, "PYTEST_DEBUG_TEMPROOT": kept}
    finally:
        remove_unused(segments() - before)


def segments() -> set[Path]:
    return {path for pattern in SEGMENTS for path in SHARED_MEMORY.glob(pattern)}


def remove_unused(paths: set[Path]) -> None:
    """Those that are ours and that no process of ours has mapped."""
    if not paths:
        return
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped += maps.read_text(errors="replace")
    for path in paths:
        with contextlib.suppress(OSError):
            if path.name not in mapped and path.stat().st_uid == os.getuid():
                path.unlink()
