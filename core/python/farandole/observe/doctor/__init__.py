"""`farandole doctor`: what is built and found on this machine, and what would go wrong in a job.

Each topic is a module: `check` asks the machine, and pure functions, one for each check, make findings of the
answers, so that the tests can show them machines that they do not have.

    machine    platform, Python, kernel calls, user, container, CUDA's driver
    limits     memory, open files, processes, locked memory, cores
    network    loopback, this host's own name
    settings   FARANDOLE_* variables; who starts the ranks and what the job's key is as secret as
    build      the installed copies, the compiled core and what it does, each in a process of its own
    packages   frameworks and plugins, from their metadata: nothing of them is imported
    run_checks all topics in order
    report     findings -> text or JSON, exit code

With -H an agent on each host (launch/agent) runs `run_checks` in a child, and `hosts` judges what all of them found.
"""

__all__: list[str] = []
