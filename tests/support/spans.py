"""A timeline with the profiles of a framework beside it: operations must lie in the spans around their calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SLACK_US = 1000


def check_operations_within_spans(timeline: Path, profiles: Sequence[str], count: int) -> None:
    """Merge what two ranks have recorded, in `profiles` as `--profile` takes them.

    Each rank has made `count` calls, named "inside 0" and so on, within spans of the profiler named "around 0".
    """
    given = [f"--profile={each}" for each in profiles]
    command = [sys.executable, "-m", "farandole.launch", "timeline", str(timeline), *given]
    subprocess.run(command, check=True, timeout=60)
    events = json.loads(timeline.read_text())
    begins = {(each["pid"], each["name"]): each for each in events if each["ph"] in "Xb"}
    ends = {(each["pid"], each["name"]): each["ts"] for each in events if each["ph"] == "e"}
    for rank in range(2):
        for number in range(count):
            around, inside = begins[rank, f"around {number}"], begins[rank, f"inside {number}"]
            assert around["ts"] - _SLACK_US <= inside["ts"]
            assert ends[rank, f"inside {number}"] <= around["ts"] + around["dur"] + _SLACK_US
