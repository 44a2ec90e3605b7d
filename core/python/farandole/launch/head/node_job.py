"""Runs one node of a job of several nodes: meets the others, starts the ranks, waits for their end.

Node 0 runs the job as one on hosts that ssh reaches, with an agent of its own here; the launchers of the other nodes
are the agents there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import replace

from farandole._start.frames import FrameReader
from farandole._start.proof import job_key
from farandole.launch import environment
from farandole.launch.agent.node_agent import NodeAgent
from farandole.launch.environment import own_version
from farandole.launch.head import host_job, node_list, ssh
from farandole.launch.head.agent_link import Link
from farandole.launch.head.agent_link import start as start_connection
from farandole.launch.head.assembly import Assembly, HostPlan
from farandole.launch.head.cluster import Cluster
from farandole.launch.head.rendezvous import CANNOT_START, RendezvousClient, RendezvousServer
from farandole.launch.plan import Job
from farandole.launch.shared_options import print_error
from farandole.launch.spec import SpecError
from farandole.launch.supervise import Supervisor

_PART_SECONDS = 2.0


def run(job: Job, lifeline: int) -> int:
    """Run this node's part of the job to the end of the whole job. Raises SpecError."""
    assert job.nodes is not None
    return _be_node_0(job, lifeline) if job.nodes.number == 0 else _be_node(job, lifeline)


def _be_node_0(job: Job, lifeline: int) -> int:
    assert job.nodes is not None
    stdin = os.dup(0)
    args, base = [sys.executable, *ssh.AGENT, str(stdin)], environment.without_outer_job(job.base)
    agent = start_connection(args, base, inherits=[stdin])  # is there when all have come
    meeting = RendezvousServer(job.nodes, lifeline, print_error)
    members = meeting.gather()
    try:
        return _cluster(job, lifeline, agent, members).supervisor.run()
    except (SpecError, OSError) as error:
        why = f"node 0 cannot start its ranks: {getattr(error, 'strerror', None) or error}".rstrip(".") + "."
        meeting.refuse(why, CANNOT_START)
        raise SpecError(why) from error


def _cluster(job: Job, lifeline: int, agent: subprocess.Popen[bytes], members: list[node_list.Member]) -> Cluster:
    """With the connections to all agents. `agent`: of this node. Raises SpecError, OSError."""
    assert job.nodes is not None
    ranks, salt = node_list.placements(members), os.urandom(16)
    capacity, hosts = ranks[0][0].size, {each.rank: each.host for node in ranks for each in node}
    content = {**host_job.content(job, capacity), "module": False, "key": job_key(job.nodes.key, salt).hex()}
    plans = [
        HostPlan(f"node {node}", ranks[node], member.address, node > 0, member.greeting)
        for node, member in enumerate(members)
    ]
    supervisor = Supervisor(replace(job.output, hosts=hosts), job.grace_s, lifeline)
    cluster = Cluster(
        supervisor=supervisor,
        assembly=Assembly(
            hosts=plans,
            job=content,
            environments=[dict(job.base)],
            version=own_version(),
            probe_key="",
            layout={"nodes": [[vars(each) for each in node] for node in ranks], "salt": salt.hex()},
        ),
        program="its launcher",
        silence_s=job.hosts.silence_s,
    )
    supervisor.relay.open_logs(each.rank for each in ranks[0])
    selector, on_frame = supervisor.selector, cluster.on_frame
    cluster.add(Link("node 0", selector, on_frame, agent, is_local=True))
    for plan, member in zip(plans[1:], members[1:], strict=True):
        link = Link(plan.name, selector, on_frame, connection=member.connection, reader=FrameReader(greeted=True))
        link.is_launcher = link.greeted = True
        cluster.add(link)
    return cluster


def _be_node(job: Job, lifeline: int) -> int:
    assert job.nodes is not None
    node_0, address, order = RendezvousClient(job.nodes, lifeline, print_error).dial()
    supervisor = Supervisor(replace(job.output, hosts={}), job.grace_s, lifeline)
    agent = NodeAgent(
        supervisor=supervisor,
        commands=node_0.fileno(),
        answers=os.dup(node_0.fileno()),
        number=job.nodes.number,
        own={
            **host_job.content(job, 0),
            "module": False,
            "environment": dict(job.base),
            "address": address,
        },
        key=job.nodes.key,
    )
    agent.obey(order)
    code = supervisor.run()
    _part(node_0)
    return code


def _part(connection: socket.socket) -> None:
    """Let node 0 read all that we have said: an end with its words unread would take ours from it."""
    connection.settimeout(_PART_SECONDS)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass
