"""The launcher's side of a job on several hosts.

    host_job       the job on hosts that ssh or a scheduler reaches, from its options to its exit code
    node_job       the job whose nodes each run `farandole run --nnodes N`, as the pods of Kubernetes do
    rendezvous     nodes dial in at node 0; node_list: those that have come (pure)
    agent_link     the connection to the agent of a host
    assembly       the messages to the agents up to the start of the ranks (pure)
    address_search at which addresses hosts reach each other (pure)
    cluster        the ranks of all hosts, through their agents
    follow         hosts that come and go in an elastic job; joining_host: one that comes (pure)
    failure_report which rank failed first, and the report (pure)
    check_hosts    `farandole doctor -H`

    launcher                     agent on each host (agent/host_agent.py)   who
    ssh HOST python -m ...agent
                                 greeting: version, addresses           assembly.py decides, pure
    listen                       a port for each address                agent/address_probe.py opens and tries them
    probe the others' addresses  those that answered                    address_search.py chooses, pure
    reserve (rank 0's host)      the ports of the store and MASTER
    start                        the ranks' output, their deaths        cluster.py

Everything travels in frames (_start/frames.py) on the agent's stdin and stdout. The end of stdin ends the agent and its
ranks.
"""
