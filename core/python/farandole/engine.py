"""The contract of plugins for engines, such as Spark and Ray: tasks of an engine as the ranks of a job.

driver    with Call(fn, args, kwargs, "my.run") as call, Hub(address) as hub:
              start the engine's tasks, with hub.endpoint and hub.key
              hub.wait(tasks, seconds)
              results = call.run(hub, "My engine", ranks)
task      serve(endpoint, key, order=its number, secret=...)

An engine that ends all ranks together keeps their commits outside of them, for the next job:

driver    where = Where(job, key);  Hub(address, shelf=Shelf(key));  later replace(where, stage=1, has_earlier=True)
task      serve(..., commits=where)

An engine that hands calls to ranks itself, one after the other, has them and their outcomes as bytes:

driver    call = pack_call(fn, args, kwargs, "my.run")
rank      outcome, error = outcome_of(call, rank);  if error: tell_failure(error), so that all know who failed first
driver    result_in(outcome, rank, ranks), which raises what the function raised there
"""

from farandole._engines.call import Call
from farandole._engines.copies import Shelf
from farandole._engines.copy_folder import Folder
from farandole._engines.driver_log import DriverLog, log_to_driver
from farandole._engines.hub import Hub
from farandole._engines.keeper import Where
from farandole._engines.places import Host, Task
from farandole._engines.task import serve
from farandole._functions.outcome import of_call as outcome_of
from farandole._functions.outcome import result_in, traceback_in
from farandole._functions.parcel import for_elsewhere as pack_call
from farandole._start.ending import raised as tell_failure
from farandole.launch.output import is_name_of_rank

__all__ = [
    "Call",
    "DriverLog",
    "Folder",
    "Host",
    "Hub",
    "Shelf",
    "Task",
    "Where",
    "is_name_of_rank",
    "log_to_driver",
    "outcome_of",
    "pack_call",
    "result_in",
    "serve",
    "tell_failure",
    "traceback_in",
]
