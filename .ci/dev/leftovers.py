"""Keeps leftovers of killed programs out of the way of later runs."""

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

    A killed program's leftovers there bear its process identifier. Open MPI's mpirun, for one, refuses to start when it
    has the same identifier and meets them. pytest's own folders stay, so that a failure can be examined.
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
