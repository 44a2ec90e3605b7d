"""Asks `farandole inspect` again and again, and prints each answer as a line of JSON: `asker.py PAUSE_S`.

It is one process, since the start of a program for each answer would take the processors from the ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time

from farandole.observe.inspect import inspect
from farandole.observe.jobs import InspectionError


def ask() -> dict[str, object]:
    """Returns the answer of inspect; nothing where there is no job."""
    try:
        text, _ = inspect(os.environ, "", as_json=True, with_stacks=False)
    except InspectionError:
        return {}
    found = json.loads(text)
    return {name: found[name] for name in ("kind", "culprits", "sentence")}


def main(pause_s: float) -> None:
    while True:
        answer = ask()
        print(json.dumps({"at": time.monotonic(), **answer}), flush=True)
        time.sleep(pause_s)


if __name__ == "__main__":
    main(float(sys.argv[1]))
