"""Functions as ranks in the tasks of an engine such as Spark. `farandole.engine` has the names for plugins.

    call      the function to the launcher, its results to the caller
    hub       where tasks meet the driver, and the launcher the tasks
    places    which tasks share a host, and which of them has its agent   (pure)
    task      the task's part: meets the hub, runs the agent, ends with the job
    rank      the program of a rank
    waiting   sentences about what a driver waits for
    kept      commits that are kept outside of the ranks, for the next stage of a job
    copies    their form; the driver's shelf for them
    copy_folder    the same in a folder that hosts share
    keeper    the rank's part: sends or writes them in the background
    driver_log    lines that ranks write for the driver alone

    driver                                                              executor
    caller -- child --> launcher                                        task
      hub <- Unix socket --+                                              |
       |  <------------------ TCP, proved with the hub's key -------------+
       +-- hands the connection to the launcher       agent <-- stdin and stdout are that connection
                                                        +--> ranks

It is `farandole.run` with another way to an agent: the same launcher, messages, output, blame and pickling. An engine
starts tasks, each of which calls `serve`; the driver calls `call`. A host has one agent, in the task that came with the
lowest number, as a host is where ranks share memory and number its GPUs. Its ranks end with it, and it ends with its
task, with the connection, and with the driver.

The hub's key travels with the engine's tasks, which may write them to a disk. So an engine gives its tasks a second
secret by a message of its own: with it the agents make the key of the ranks from the launcher's.
"""
