"""`farandole doctor`: checks this machine and its installation, and predicts what would go wrong in a job.

Each topic is a module. Its `check` asks the machine, and a pure function for each check turns the answer into a
finding, so that tests can simulate other machines.

    machine    platform, Python, kernel calls, user, container, CUDA's driver
    limits     memory, open files, processes, locked memory, cores
    network    loopback, this host's own name
    settings   FARANDOLE_* variables, the launcher, and how secret the job's key is
    build      the installed copies, and the compiled core, which is tried in child processes
    packages   frameworks and plugins, from their metadata, without importing them
    run_checks all topics in order
    report     the findings as text or JSON, and the exit code

With -H, an agent on each host (launch/agent) runs `run_checks` in a child, and `hosts` assesses all results.
"""

__all__: list[str] = []
