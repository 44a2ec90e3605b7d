"""Functions as ranks in the tasks of a cluster such as Spark's. `farandole.engine` has the names for plugins.

    call           the function to the launcher, its results to the caller
    server         where tasks meet the driver, and the launcher the tasks
    hosts          which tasks share a host, and which of them has its agent   (pure)
    task           the task's part: connects to the server, runs the agent, ends with the job
    rank           the program of a rank
    commit_store   commits outside of the ranks, for the next stage of a job
    commit_client  the rank's part: where it sends or writes them
    driver_log     lines that ranks write for the driver alone, and what a driver waits for

    driver                                                              executor
    caller -- child --> launcher                                        task
      server <- Unix socket -+                                            |
       |  <------------------ TCP, proved with the server's key ----------+
       +-- hands the connection to the launcher       agent <-- stdin and stdout are that connection
                                                        +--> ranks

It is `farandole.run` with other connections to agents: the same launcher, messages, output, failure reports and
pickling. A cluster starts tasks, each of which calls `serve`; the driver calls `call`. A host has one agent, in the
task that came with the lowest number, as a host is where ranks share memory and number its GPUs. Its ranks end with
it; it ends with its task, with the connection, and with the driver.

The server's key travels with the cluster's tasks, which may write them to a disk. So a cluster gives its tasks a second
secret by a message of its own: with it the agents make the key of the ranks from the launcher's.
"""
