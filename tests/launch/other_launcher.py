"""Two ranks that no launcher of ours has started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def two_ranks(program: Path, folder: Path, env: Mapping[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """They run the program in the folder, with these variables beside ours, and are killed at the end."""
    key = folder / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    world = {"SIZE": "2", "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1", "KEY_FILE": str(key)}
    world["STORE"] = f"unix:farandole-test-{os.urandom(16).hex()}"
    ranks = []
    for rank in ("0", "1"):
        place = {f"FARANDOLE_{name}": value for name, value in {**world, "RANK": rank, "LOCAL_RANK": rank}.items()}
        around = {**os.environ, **env, **place}
        ranks.append(subprocess.Popen([sys.executable, str(program)], cwd=folder, env=around))
    try:
        yield ranks
    finally:
        for each in ranks:
            each.kill()
            each.wait()
