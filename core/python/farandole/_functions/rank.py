"""The program of a rank of `farandole.run`: reads the call, makes it, and leaves its outcome."""

from __future__ import annotations

import os
import sys

from farandole._functions import call_payload, outcome
from farandole._start import ending, environment


def main(has_path: bool = False) -> None:
    """Make the call that lies at the last argument but one; the last is the descriptor for its outcome.

    Exits with 1 where the function raises. `has_path`: this process finds modules without the caller's import path.
    """
    path, descriptor, rank, pid = sys.argv[1], int(sys.argv[2]), environment.discover().rank, os.getpid()
    os.set_inheritable(descriptor, False)
    callers_path, is_other, sys.argv[:], call = call_payload.read(path)
    if has_path:
        callers_path = [*sys.path, *(each for each in callers_path if each not in sys.path)]
    elif is_other:
        callers_path += sys.path[:-1]  # the last one is the caller's: there the command has found Farandole
    sys.path[:] = callers_path
    try:
        fn, args, kwargs = call_payload.load(call)
        del call
        result = fn(*args, **kwargs)
        if os.getpid() == pid:
            outcome.write_result(descriptor, rank, result)
    except Exception as error:
        if os.getpid() != pid:  # a child that the function has forked
            raise
        outcome.write_error(descriptor, error)
        ending.raised(error)
        sys.exit(1)
