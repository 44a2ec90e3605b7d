"""Jobs whose nodes each run `farandole run --nnodes N`, as the pods of Kubernetes do: nothing is reached by ssh.

    options.py     the options of a node
    proof.py       both ends of a connection prove that they have the key; pure
    channel.py     a connection between two launchers: the proof, then messages
    roll.py        node 0's list of those that have come; pure
    meeting.py     from the name of node 0 to the moment when all know each other
    supervisor.py  the ranks of this node, and what the others tell of theirs
    start.py       one job from its options to its exit code

Node 0 is the meeting point, and passes on what one node tells all others. Ranks connect to each other as on hosts that
ssh reaches.
"""
