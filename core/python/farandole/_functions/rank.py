"""The program of a rank of `farandole.run`: reads the call, makes it, and leaves its outcome."""

from __future__ import annotations

import pickle
import sys

from farandole._functions import outcome, parcel
from farandole._runtime.uncaught import Uncaught
from farandole._start import ending, environment


def main() -> None:
    """Make the call in the folder that the first argument names. Exits with 1 where the function raises."""
    folder, rank = sys.argv[1], environment.discover().rank
    sys.path[:], sys.argv[:], call = parcel.read(folder)
    try:
        fn, args, kwargs = pickle.loads(call)
        outcome.write_result(folder, rank, fn(*args, **kwargs))
    except Exception as error:
        trace = error.__traceback__
        text = Uncaught(error, trace and trace.tb_next).text  # without this frame
        outcome.write_error(folder, rank, error, text)
        ending.raised()
        sys.exit(1)
