"""The contract of plugins for engines, such as Spark and Ray: tasks of an engine as the ranks of a job.

driver    with Call(fn, args, kwargs, "my.run") as call, Hub(address) as hub:
              start the engine's tasks, with hub.endpoint and hub.key
              hub.wait(tasks, seconds)
              results = call.run(hub, "My engine", ranks, listed(hub.arrange()))
task      serve(endpoint, key, order=its number, secret=...)
"""

from farandole._engines.call import Call
from farandole._engines.driver_log import DriverLog, log_to_driver
from farandole._engines.hub import Hub
from farandole._engines.places import Host, Task, listed
from farandole._engines.task import serve

__all__ = ["Call", "DriverLog", "Host", "Hub", "Task", "listed", "log_to_driver", "serve"]
