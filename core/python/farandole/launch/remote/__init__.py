"""Jobs on several hosts: one agent on each, started by ssh or dialled in (launch/nodes), which starts the ranks there.

    launcher                     agent on each host (agent.py)          who
    ssh HOST python -m ...agent
                                 greeting: version, addresses           assembly.py decides, pure
    listen                       a port for each address                probe.py opens and tries them
    probe the others' addresses  those that answered                    reach.py chooses, pure
    reserve (rank 0's host)      the ports of the store and MASTER
    start                        the ranks' output, their deaths        cluster.py

`farandole doctor -H` sends others (examination.py): listen and probe as above, `clock`, and `examine`, for which the
agent has a child (examiner.py).

Everything travels in frames (_start/frames.py) on the agent's stdin and stdout. The end of stdin ends the agent and its
ranks.
"""
