"""Jobs whose nodes each run `farandole run --nnodes N`, as the pods of Kubernetes do: nothing is reached by ssh.

    options.py     the options of a node
    roll.py        node 0's list of those that have come; pure
    meeting.py     from the name of node 0 to the moment when all have come
    agent.py       the agent of a node but node 0
    start.py       one job from its options to its exit code

Node 0 is the launcher of a job on several hosts (launch/remote), and the launchers of the other nodes are the agents.
"""
