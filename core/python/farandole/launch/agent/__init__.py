"""What runs on each host of a job: the agent, which starts and supervises the ranks there.

host_agent     the program that ssh, a scheduler or a task of a cluster starts
node_agent     the launcher of a node that has dialled in at node 0
address_probe  tries at which addresses other hosts are reached
"""
