"""Values that ranks hand to the callbacks of `run` on the driver.

They are lines of the rank's stdout that begin with the mark of the call, so they come in the order of its other lines,
and no line of a program can be taken for one.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
from typing import Any

from farandole import ArgumentError, ArgumentTypeError

BETWEEN = "="  # mark and values
_MOST_BYTES = 256 << 10  # as pickled: the launcher cuts lines that are far longer
_mark = ""  # of the call that this process makes


def begin(mark: str) -> None:
    """This rank makes the call with this mark."""
    global _mark
    _mark = mark


def log(values: Any) -> None:
    """Hand values to each of the `callbacks` of `RayExecutor.run` on the driver; elsewhere it does nothing.

    Args:
        values: a dict such as `{"epoch": 3, "loss": 0.2}`, or anything else that can be pickled.

    Raises:
        ArgumentTypeError: they cannot be pickled.
        ArgumentError: they have more than 256 KiB.
    """
    if not _mark:
        return
    try:
        pickled = pickle.dumps(values)
    except Exception as error:  # of any class: the objects' own methods raise it
        raise ArgumentTypeError(
            f"farandole_ray.log cannot send a {type(values).__name__} ({error}); log numbers, text, lists and dicts."
        ) from error
    if len(pickled) > _MOST_BYTES:
        raise ArgumentError(
            f"farandole_ray.log sends at most {_MOST_BYTES >> 10} KiB, not {len(pickled) >> 10}; return larger results."
        )
    sys.stdout.flush()
    line = memoryview(f"{_mark}{BETWEEN}{base64.b64encode(pickled).decode()}\n".encode())
    while line:
        line = line[os.write(1, line) :]


def read(text: str) -> Any:
    """The values in a line, behind its mark. The driver unpickles what its ranks return, too."""
    return pickle.loads(base64.b64decode(text))
