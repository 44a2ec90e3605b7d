"""The launcher: starts the ranks of a job, relays their output and ends them together.

Programs call `run`, people the command `farandole run`. The launcher never loads the compiled module: it passes facts
to the ranks only through the environment variables of `environment.py`.

    cli          command line -> spec                                      spec: the description of a job
    job          `run`: the launcher as a child process                    job_runner.main: that child
    plan         spec -> job, which job_runner starts                   events: what happens to a job, for programs
    placement    -np and -H -> the host of each rank                       (pure)
    environment  the launcher's environment -> the environment of a rank
    guard        two processes, each of which cleans up if the other is killed; the process tree
    processes    the ranks of this host
    head         the ranks of several hosts, through agents                agent: the program on each host
    supervise    the loop: signals, deaths, output                         ending: when to end the ranks (pure)
    relay        pipes -> lines -> writers, logs, last lines               output: whole lines on one screen (pure)
    rank_exit    the end of a rank; head/failure_report: who failed first  (pure)
"""

from farandole.launch.job import JobResult, Stop, run
from farandole.launch.spec import JobSpec, SpecError

__all__ = ["JobResult", "JobSpec", "SpecError", "Stop", "run"]
