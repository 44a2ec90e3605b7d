"""The contract of plugins for engines, such as Spark and Ray: tasks of an engine as the ranks of a job.

driver    with Call(fn, args, kwargs, "my.run") as call, Hub(address) as hub:
              start the engine's tasks, each with hub.invite()
              hub.wait(tasks, seconds)
              results = call.run(hub, "My engine", ranks)
task      serve(invitation, order=its number, secret=...)

An engine that ends all ranks together keeps their commits outside of them, for the next job:

driver    kept = Kept();  Hub(address, shelf=kept.shelf);  hub.invite(kept.of_stage(0));  later kept.of_stage(1)

An engine that hands calls to ranks itself, one after the other, has them and their outcomes as bytes:

driver    call = pack_call(fn, args, kwargs, "my.run")
rank      outcome, error = outcome_of(call, rank);  if error: raise error, which ends the rank and then the job
driver    result_in(outcome, rank, ranks), which raises what the function raised there
task      say(connection, kind, ...), hear(connection), hear_bytes(connection, size), for messages to ranks
"""

from farandole._engines.call import Call
from farandole._engines.driver_log import DriverLog, log_to_driver
from farandole._engines.hub import Hub
from farandole._engines.keeper import Where
from farandole._engines.kept import Kept
from farandole._engines.places import Host, Task
from farandole._engines.task import Invitation, serve
from farandole._engines.waiting import Teller
from farandole._functions.outcome import of_call as outcome_of
from farandole._functions.outcome import result_in, traceback_in
from farandole._functions.parcel import for_elsewhere as pack_call
from farandole._functions.parcel import load as unpack_call
from farandole._start.connection import hear, hear_bytes, say
from farandole._start.sockets import is_ours
from farandole.launch.output import is_name_of_rank

__all__ = [
    "Call",
    "DriverLog",
    "Host",
    "Hub",
    "Invitation",
    "Kept",
    "Task",
    "Teller",
    "Where",
    "hear",
    "hear_bytes",
    "is_name_of_rank",
    "is_ours",
    "log_to_driver",
    "outcome_of",
    "pack_call",
    "result_in",
    "say",
    "serve",
    "traceback_in",
    "unpack_call",
]
