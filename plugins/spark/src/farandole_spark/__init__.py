"""Runs functions as the ranks of a training job in tasks of Apache Spark.

    from farandole_spark import run, HorovodRunner
    results = run(train, args=(0.1,), num_proc=8)      # of all ranks, in their order
    results = run_elastic(train, num_proc=8, min_num_proc=4)    # continues after executors are lost
    result = HorovodRunner(np=8).run(train, lr=0.1)    # of rank 0

A barrier stage has a task for each rank. The first task of each host starts an agent of Farandole in a new process, and
the launcher on the driver lets the agents start the ranks. So messages, output and the end of a job are those of
`farandole run`. PySpark is imported at the first call.
"""

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-spark")  # refuses a core of another version before importing from it

# isort: split
from farandole.engine import log_to_driver

from farandole_spark._elastic import run_elastic
from farandole_spark._run import run
from farandole_spark._runner import HorovodRunner

__all__ = ["HorovodRunner", "log_to_driver", "run", "run_elastic"]
