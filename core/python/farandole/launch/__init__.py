"""The launcher: starts the ranks of a job, relays their output and ends them together.

`run` runs a job from a program, as the command `farandole run` does for people. The launcher never loads the compiled
module: it meets the ranks through the environment variables of `environment.py` only.

    cli          what the user typed -> spec                               spec: the description of a job
    job          `run`: the launcher as a child of a program               job_runner.main: that child
    plan         spec -> job, which job_runner starts                   events: what happens to a job, for programs
    placement    -np and -H -> who is which rank, where                    (pure)
    environment  the environment we were given -> the environment of a rank
    guard        two processes that outlive each other long enough to clean up; the process tree
    processes    the ranks of this host
    head         the ranks of several hosts, through agents                agent: the program on each host
    supervise    the loop: signals, deaths, output                         ending: what to do when (pure)
    relay        pipes -> lines -> writers, logs, last lines               output: whole lines on one screen (pure)
    rank_exit    the end of a rank; head/failure_report: who failed first  (pure)
"""

from farandole.launch.job import JobResult, Stop, run
from farandole.launch.spec import JobSpec, SpecError

__all__ = ["JobResult", "JobSpec", "SpecError", "Stop", "run"]
