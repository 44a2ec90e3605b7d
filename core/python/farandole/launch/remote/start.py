"""Starts a job on several hosts: plans the agents, starts the ways to them, and hands over to the supervisor."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from farandole.launch import environment
from farandole.launch.description import Job
from farandole.launch.discovery.roster import Roster
from farandole.launch.hosts import LOCAL_HOST, one_name_here
from farandole.launch.job import Placement
from farandole.launch.local import KEY_BYTES
from farandole.launch.remote import link, ssh
from farandole.launch.remote.assembly import Assembly, HostPlan
from farandole.launch.remote.cluster import ClusterSupervisor
from farandole.launch.remote.follow import Follower, Ways
from farandole.launch.version import own_version


def run(job: Job, lifeline: int) -> int:
    """Run the job to its end, and return its exit code. Raises OutputError, and OSError where there is no ssh."""
    plans = _plans(job)
    words_of_ssh = environment.settings(job.base).ssh
    lease, slots = (None, None) if job.elastic is None else job.elastic.for_ranks(job.placements)
    supervisor = ClusterSupervisor(
        replace(job.output, hosts={each.rank: each.host for each in job.placements}),
        job.grace_s,
        lifeline,
        assembly=Assembly(
            hosts=plans,
            job=_content(job, slots.capacity if slots else len(job.placements)),
            environments=[_variables(job, plan.name) for plan in plans],
            version=own_version(),
            probe_key=secrets.token_hex(32),
            interfaces=job.hosts.interfaces,
        ),
        python=job.hosts.python,
        program=job.hosts.engine.program if job.hosts.engine else "ssh",
        call=job.call,
        lease=lease,
        slots=slots,
    )

    def open_way(name: str, has_threads: bool = False) -> link.Link:
        is_local = job.is_local(name)
        words = ssh.reach(name, is_local, job.hosts, words_of_ssh)
        process = link.start(words, environment.without_outer_job(job.base), has_threads)
        return link.Link(name, process, supervisor.selector, is_local, supervisor.on_frame)

    supervisor.follower = _follower(job, open_way)
    if supervisor.follower is not None:
        supervisor.follower.attach(supervisor, supervisor.selector)
    supervisor.relay.open_logs(placement.rank for placement in job.placements)
    for plan in plans:
        supervisor.add(open_way(plan.name))
    return supervisor.run()


def _follower(job: Job, open_way: Callable[..., link.Link]) -> Follower | None:
    """None where the hosts of the start are all that there will be."""
    if job.source is None or job.elastic is None:
        return None
    here = next((each.host for each in job.placements if job.is_local(each.host)), LOCAL_HOST)
    ways = Ways(
        open=partial(open_way, has_threads=True),
        environment=partial(_variables, job),
        unified=lambda slots: one_name_here(slots, job.local_names, here),
    )
    roster, base = Roster(job.elastic.backoff), environment.without_outer_job(job.base)
    return Follower(ways, job.source, base, roster, own_version())


def _plans(job: Job) -> list[HostPlan]:
    by_host: dict[str, list[Placement]] = {}
    for placement in job.placements:
        by_host.setdefault(placement.host, []).append(placement)
    return [HostPlan(name, placements) for name, placements in by_host.items()]


def _content(job: Job, capacity: int) -> dict[str, object]:
    return {
        "command": list(job.command),
        "module": job.module,
        "folder": os.getcwd(),
        "key": secrets.token_hex(KEY_BYTES),
        "start_timeout_s": job.start_timeout_s,
        "grace_s": job.grace_s,
        "elastic": job.elastic is not None,
        "stays": job.elastic is not None and job.source is not None,
        "capacity": capacity,
        "bind_to": job.hosts.bind_to,
        "call_bytes": os.fstat(job.call).st_size if job.call >= 0 else -1,
    }


def _variables(job: Job, host: str) -> dict[str, str]:
    if job.is_local(host):
        return dict(job.base)
    return environment.for_other_hosts(job.base, job.hosts.env)
