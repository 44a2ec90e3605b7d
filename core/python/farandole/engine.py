"""The contract of plugins for clusters, such as Spark and Ray: tasks of a cluster as the ranks of a job.

driver    with Call(fn, args, kwargs, "my.run") as call, TaskServer(address) as server:
              start the cluster's tasks, each with server.invite()
              server.wait(tasks, seconds)
              results = call.run(server, "My cluster", ranks)
task      serve(invitation, order=its number, secret=...)

A cluster that ends all ranks together keeps their commits outside of them, for the next job:

driver    commits = CommitStore();  TaskServer(address, store=commits.store)
          server.invite(commits.target), and again for the next stage

A cluster that hands calls to ranks itself, one after the other, has them and their outcomes as bytes:

driver    call = pack_call(fn, args, kwargs, "my.run")
rank      outcome, error = outcome_of(call, rank);  if error: raise error, which ends the rank and then the job
driver    result_in(outcome, rank, ranks), which raises what the function raised there
task      say(connection, kind, ...), hear(connection), hear_bytes(connection, size), for messages to ranks

Processes that share a key, ranks or not, talk over connections whose ends have proved it:

one       Acceptor(key, silence_s, welcome).serve(listener), which calls welcome(connection, its first message)
other     connection = connect((address, port), key), which raises one of FAILURES
"""

from farandole._cluster.call import Call
from farandole._cluster.commit_store import CommitStore, CommitTarget
from farandole._cluster.driver_log import DriverLog, WaitMessages, log_to_driver
from farandole._cluster.hosts import Host, Task
from farandole._cluster.server import TaskServer
from farandole._cluster.task import Invitation, serve
from farandole._functions.call_payload import for_elsewhere as pack_call
from farandole._functions.call_payload import load as unpack_call
from farandole._functions.outcome import of_call as outcome_of
from farandole._functions.outcome import result_in, traceback_in
from farandole._start.connection import FAILURES, Acceptor, connect, hear, hear_bytes, say
from farandole._start.sockets import is_ours
from farandole.launch.output import is_name_of_rank

__all__ = [
    "Acceptor",
    "Call",
    "CommitStore",
    "CommitTarget",
    "DriverLog",
    "FAILURES",
    "Host",
    "Invitation",
    "Task",
    "TaskServer",
    "WaitMessages",
    "connect",
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
