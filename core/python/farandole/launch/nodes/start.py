"""One job of several nodes, on this one: meets the others, starts the ranks, sees them through."""

from __future__ import annotations

from dataclasses import replace

from farandole._start.rank_records import RankRecords, make_memory
from farandole.launch import local
from farandole.launch.description import Job
from farandole.launch.events import JobEnded
from farandole.launch.nodes.meeting import Guest, MeetingError, MeetingPoint
from farandole.launch.nodes.supervisor import NodeSupervisor
from farandole.launch.relay import OutputError
from farandole.launch.shared_options import print_error

_CANNOT_START = 1


def run(job: Job, lifeline: int) -> int:
    """Run this node's part of the job to the end of the whole job."""
    assert job.nodes is not None
    hosts: dict[int, str] = {}  # the relay looks here once ranks print
    supervisor = NodeSupervisor(
        replace(job.output, hosts=hosts),
        job.grace_s,
        lifeline,
        records=RankRecords(make_memory(1), 1),
        number=job.nodes.number,
        hosts=hosts,
    )
    kind = MeetingPoint if job.nodes.number == 0 else Guest
    meeting = kind(job.nodes, supervisor.selector, lambda: supervisor.ending.began_at is not None, print_error)
    try:
        gathered, channels, held = meeting.gather()
    except MeetingError as error:
        if str(error):
            job.end(JobEnded(error.exit_code, (str(error),), is_refused=True))
        return error.exit_code
    supervisor.listen(channels, held)
    try:
        supervisor.start(job, gathered, job.nodes.key)
    except (local.CommandError, OutputError, OSError) as error:
        code = getattr(error, "exit_code", _CANNOT_START)
        why = f"node {job.nodes.number} cannot start its ranks: {getattr(error, 'strerror', None) or error}"
        supervisor.say("failed", why=why.rstrip("."), code=code)
        meeting.flush(channels.values())
        job.end(JobEnded(code, (f"{why.rstrip('.')}.",), is_refused=True))
        return code
    return supervisor.run()
