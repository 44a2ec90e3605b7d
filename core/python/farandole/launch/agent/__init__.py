"""The agent, which starts and supervises the ranks of each host of a job.

host_agent     the program that ssh, a scheduler or a task of a cluster starts
node_agent     the launcher of a node that has dialled in at node 0
address_probe  tries at which addresses other hosts are reached
"""
