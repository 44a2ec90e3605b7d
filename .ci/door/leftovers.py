"""What killed programs leave behind is in no later run's way."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# In shared memory, of MPICH and of Open MPI: a rank that is killed leaves its own.
SEGMENTS = ("mpich_shm_*", "sm_segment.*")


@contextlib.contextmanager
def own_folder() -> Iterator[dict[str, str]]:
    """The variables of tests that have a folder of their own for temporary files, which goes afterwards.

    What a killed program leaves there bears its process identifier: a later one of the same identifier meets it, and
    Open MPI's mpirun, for one, refuses to start then. pytest's own folders stay for whoever looks for a fault.
    """
    kept = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    before = segments()
    try:
        with tempfile.TemporaryDirectory(prefix="frd-", ignore_cleanup_errors=True) as place:
            yield {"TMPDIR": place, "PYTEST_DEBUG_TEMPROOT": kept}
    finally:
        for path in segments() - before:
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
