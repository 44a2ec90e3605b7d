"""The program of a rank of `farandole.run`: reads the call, makes it, and leaves its outcome."""

from __future__ import annotations

import os
import pickle
import sys

from farandole._functions import outcome, parcel
from farandole._runtime.uncaught import Uncaught
from farandole._start import ending, environment


def main() -> None:
    """Make the call that lies at the last argument but one; the last is the descriptor for its outcome.

    Exits with 1 where the function raises.
    """
    path, descriptor, rank = sys.argv[1], int(sys.argv[2]), environment.discover().rank
    os.set_inheritable(descriptor, False)
    sys.path[:], sys.argv[:], call = parcel.read(path)
    try:
        fn, args, kwargs = pickle.loads(call)
        del call
        outcome.write_result(descriptor, rank, fn(*args, **kwargs))
    except Exception as error:
        trace = error.__traceback__
        text = Uncaught(error, trace and trace.tb_next).text  # without this frame
        outcome.write_error(descriptor, error, text)
        ending.raised(error)
        sys.exit(1)
