"""The launcher: starts the ranks of a job, relays their output and ends them together.

It never loads the compiled module: it meets the ranks through the environment variables of `environment.py` only.

    cli          what the user typed                                       -> job, command, options
    placement    -np and -H -> who is which rank, where                    (pure)
    environment  the environment we were given -> the environment of a rank
    guard        two processes that outlive each other long enough to clean up; the process tree
    local        starts one process per rank on this machine
    supervise    the loop: signals, deaths, output                         ending: what to do when (pure)
    relay        pipes -> lines -> writers, logs, last lines               output: whole lines on one screen (pure)
    verdict      who failed first, and how to say it                       (pure)
"""

__all__: list[str] = []
