"""The child of an agent that examines this host for `farandole doctor -H`. It writes to memory, so nobody waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from farandole.launch import guard
from farandole.launch.remote.ssh import last_line


class Examiner:
    """Runs the child once. The agent reaps it, and kills it where it ends first."""

    def __init__(self, environment: Mapping[str, str], limit_s: float) -> None:
        """Raises OSError. REQUIRES one thread."""
        self._out, self._err = (os.fdopen(os.memfd_create(f"farandole {name}"), "rb") for name in ("out", "err"))
        words = [sys.executable, "-m", "farandole.observe.doctor.examine", str(limit_s)]
        self._process = guard.start_child(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err
        )

    @property
    def pid(self) -> int:
        """The child."""
        return self._process.pid

    def answer(self, code: int) -> dict[str, Any]:
        """Findings and versions, or the only key "error", of a child that has ended with this code."""
        self._process.returncode = code
        out, err = (os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0) for each in (self._out, self._err))
        try:
            answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return {"error": f"it could not be examined{last_line(err.decode(errors='replace'))}"}
        return answer
