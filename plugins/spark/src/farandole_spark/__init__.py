"""Functions as the ranks of a training job, in tasks of Apache Spark.

    from farandole_spark import run, HorovodRunner
    results = run(train, args=(0.1,), num_proc=8)      # of all ranks, in their order
    results = run_elastic(train, num_proc=8, min_num_proc=4)    # goes on from the last commit when executors are lost
    result = HorovodRunner(np=8).run(train, lr=0.1)    # of rank 0

A barrier stage has a task for each rank. The first task of each host runs an agent of Farandole, in a process of its
own, and the launcher on the driver has the ranks started there; so a job in Spark has the messages, the output and the
end of one of `farandole run`. PySpark is imported at the first call.
"""

from farandole.plugin import version_of as _version_of

__version__ = _version_of("farandole-spark")  # refuses a core that does not fit, before anything is missing in it

# isort: split
from farandole.engine import log_to_driver

from farandole_spark._elastic import run_elastic
from farandole_spark._run import run
from farandole_spark._runner import HorovodRunner

__all__ = ["HorovodRunner", "log_to_driver", "run", "run_elastic"]
