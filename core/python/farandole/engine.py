"""For plugins that start ranks on an engine, such as Ray: calls and their outcomes as bytes that the engine carries.

    call = pack_call(fn, args, kwargs)                 on the driver; names what cannot be pickled
    outcome, error = outcome_of(call, rank)            on a rank; `error` is what the function raised
    if error: tell_failure(error)                      the launcher then knows who failed first
    result_in(outcome, rank, ranks)                    on the driver; raises what the function raised there
"""

from farandole._functions.outcome import of_call as outcome_of
from farandole._functions.outcome import result_in, traceback_in
from farandole._functions.parcel import for_elsewhere as pack_call
from farandole._start.ending import raised as tell_failure

__all__ = ["outcome_of", "pack_call", "result_in", "tell_failure", "traceback_in"]
