"""Starts a job on several hosts: plans the agents, connects to them, and hands over to the supervisor."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from farandole.launch import environment, guard
from farandole.launch.discovery.host_states import HostStates
from farandole.launch.environment import own_version
from farandole.launch.head import agent_link, ssh
from farandole.launch.head.assembly import Assembly, HostPlan
from farandole.launch.head.cluster import Cluster
from farandole.launch.head.follow import Follower
from farandole.launch.hosts import LOCAL_HOST, HostSlots, one_name_here
from farandole.launch.local import KEY_BYTES
from farandole.launch.placement import Placement, place
from farandole.launch.plan import Job
from farandole.launch.schedulers import tasks
from farandole.launch.supervise import RESTART, Supervisor


def run(job: Job, lifeline: int) -> int:
    """Run the job to its end, and return its exit code. Raises SpecError, and OSError without ssh.

    A job that follows a cluster starts without the hosts that cannot take part, where enough others are left.
    """
    refused: dict[str, str] = {}
    while True:
        cluster = _cluster(job, lifeline, refused)
        code = cluster.supervisor.run()
        if code != RESTART:
            return code
        signal.pthread_sigmask(signal.SIG_BLOCK, guard.HANDLED)  # until the next supervisor hears them
        refused |= cluster.refused
        job = _without(job, refused) or job


def _cluster(job: Job, lifeline: int, refused: Mapping[str, str]) -> Cluster:
    """With a connection to each host. `refused`: hosts without which an earlier try begins anew, and why."""
    plans = _plans(job)
    ssh_args = environment.settings(job.base).ssh
    lease, slots = (None, None) if job.elastic is None else job.elastic.for_ranks(job.placements)
    # A host that is the only one needs no name before each line.
    output = replace(job.output, hosts={each.rank: each.host for each in job.placements if job.has_other_hosts})
    supervisor = Supervisor(output, job.grace_s, lifeline, lease, slots)
    cluster = Cluster(
        supervisor=supervisor,
        assembly=Assembly(
            hosts=plans,
            job=content(job, slots.capacity if slots else len(job.placements)),
            environments=[_variables(job, plan.name) for plan in plans],
            version=own_version(),
            probe_key=secrets.token_hex(32),
            interfaces=job.hosts.interfaces,
        ),
        python=job.hosts.python,
        program=job.hosts.scheduler.program if job.hosts.scheduler else "ssh",
        silence_s=job.hosts.silence_s,
        call=job.call,
        can_start_without=lambda hosts: _without(job, hosts) is not None,
    )

    def connect(name: str, has_threads: bool) -> agent_link.Link:
        scheduler = job.hosts.scheduler
        if scheduler is not None and scheduler.connect is not None:
            end = "its task has ended, or was lost"
            return agent_link.Link(
                name, supervisor.selector, cluster.on_frame, connection=scheduler.connect(name), why=end
            )
        is_local = job.is_local(name)
        args = ssh.agent_command(name, is_local, job.hosts, ssh_args)
        process = agent_link.start(args, environment.without_outer_job(job.base), has_threads)
        return agent_link.Link(name, supervisor.selector, cluster.on_frame, process, is_local=is_local)

    cluster.follower = _follower(job, partial(connect, has_threads=True), refused)
    if cluster.follower is not None:
        cluster.follower.attach(cluster, supervisor.selector)
    supervisor.relay.open_logs(placement.rank for placement in job.placements)
    for plan in plans:
        cluster.add(connect(plan.name, has_threads=bool(refused)))  # an earlier try has left writers
    return cluster


def _without(job: Job, hosts: Collection[str]) -> Job | None:
    """The same job on its other hosts; None where it follows no cluster, or too few places are left."""
    if job.source is None or job.elastic is None or not hosts:
        return None
    left = [HostSlots(plan.name, len(plan.placements)) for plan in _plans(job) if plan.name not in hosts]
    count = sum(each.count for each in left)
    return replace(job, placements=place(count, left)) if count >= job.elastic.min_np else None


def _follower(job: Job, connect: Callable[[str], agent_link.Link], refused: Mapping[str, str]) -> Follower | None:
    """The follower of the hosts; None if the hosts never change."""
    if job.source is None or job.elastic is None:
        return None
    here = next((each.host for each in job.placements if job.is_local(each.host)), LOCAL_HOST)
    return Follower(
        open=connect,
        environment_of=partial(_variables, job),
        unified=lambda slots: one_name_here(slots, job.local_names, here),
        source=job.source,
        environment=environment.without_outer_job(job.base),
        host_states=HostStates(job.elastic.backoff),
        version=own_version(),
        refused=refused,
    )


def _plans(job: Job) -> list[HostPlan]:
    by_host: dict[str, list[Placement]] = {}
    for placement in job.placements:
        by_host.setdefault(placement.host, []).append(placement)
    return [HostPlan(name, placements) for name, placements in by_host.items()]


def content(job: Job, capacity: int) -> dict[str, object]:
    """The facts about the job that all agents get at the start."""
    return {
        "command": list(job.command),
        "module": job.module,
        "folder": "" if _has_agents(job) else os.getcwd(),
        "key": secrets.token_hex(KEY_BYTES),
        "start_timeout_s": job.start_timeout_s,
        "grace_s": job.grace_s,
        "elastic": job.elastic is not None,
        "stays": job.elastic is not None and job.source is not None,
        "capacity": capacity,
        "bind_to": job.hosts.bind_to,
        "call_bytes": os.fstat(job.call).st_size if job.call >= 0 else -1,
    }


def _has_agents(job: Job) -> bool:
    return job.hosts.scheduler is not None and job.hosts.scheduler.has_agents


def _variables(job: Job, host: str) -> dict[str, str]:
    if job.is_local(host):
        return dict(job.base)
    if _has_agents(job):
        return tasks.variables(environment.without_outer_job(job.base), job.hosts.env)
    return environment.for_other_hosts(job.base, job.hosts.env)
