"""Runs one planned job and returns its exit code: `farandole run` after its options are parsed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

from farandole.launch import environment, guard, local
from farandole.launch.events import JobEnded
from farandole.launch.messages import one_line, shown, spoken
from farandole.launch.plan import Caller, Job, hints, plan
from farandole.launch.processes import Children, Start
from farandole.launch.shared_options import print_error
from farandole.launch.spec import JobSpec, SpecError
from farandole.launch.supervise import Supervisor

CANNOT_START = 1


def run_job(job: Job) -> int:
    """Start the ranks, wait until all have ended, and clean up. Returns the exit code of the job."""
    works = [partial(_run_line, job, index) for index in range(len(job.lines))] or [partial(_run_command, job)]
    with _page(job):
        return guard.run_guarded(*works, end=job.end)


def _page(job: Job) -> contextlib.AbstractContextManager[None]:
    if job.served is None:
        return contextlib.nullcontext()
    from farandole.observe.live.command import beside

    return beside(job.base, job.served)


def _run_line(job: Job, index: int, lifeline: int) -> int:
    """Run a line of a job file as all ranks; all of them have ended, and all that they started, before it returns."""
    line, output = job.lines[index], replace(job.output, continues_logs=index > 0)
    code = _run_command(replace(job, command=[*job.command[:-1], line], output=output), lifeline)
    if code != 0:
        with contextlib.suppress(OSError):
            print_error(_failure(index + 1, job.lines, code))
    return code


def _failure(number: int, lines: Sequence[str], code: int) -> str:
    """Return the sentence about the failure of line `number`, counted from 1."""
    last = len(lines)
    left = f"lines {number + 1} to {last} were" if last > number + 1 else f"line {last} was"
    rest = f"; {left} not started" if last > number else ""
    return f"line {number} of {last}, {shown(lines[number - 1])}, ended with exit code {code}{rest}."


def _run_command(job: Job, lifeline: int) -> int:
    try:
        run = _run_on_hosts if job.nodes or job.has_other_hosts else _run_here
        return run(job, lifeline)
    except SpecError as error:
        return _refuse(job, str(error), error.exit_code)


def _run_on_hosts(job: Job, lifeline: int) -> int:
    try:
        if job.nodes is not None:
            from farandole.launch.head import node_job

            return node_job.run(job, lifeline)
        from farandole.launch.head import host_job

        return host_job.run(job, lifeline)
    except OSError as error:
        return _refuse(job, f"cannot start {error.filename or 'the agents'}: {error.strerror}.", CANNOT_START)


def _run_here(job: Job, lifeline: int) -> int:
    try:
        lease, slots = (None, None) if job.elastic is None else job.elastic.for_ranks(job.placements)
        supervisor = Supervisor(job.output, job.grace_s, lifeline, lease, slots)
        ranks = supervisor.ranks = supervisor.members = Children(supervisor, supervisor)
        supervisor.relay.open_logs(placement.rank for placement in job.placements)
        port = local.reserve_port()  # open as long as the ranks run
        capacity = slots.capacity if slots else len(job.placements)
        ranks.prepare(_start(job, capacity, port.getsockname()[1]))
        if job.output.verbose:
            supervisor.relay.say(_summary(job, environment.available_cores()))
        for placement in job.placements:
            ranks.start(placement)
    except OSError as error:
        wanted = f"{len(job.placements)} ranks"
        return _refuse(job, f"cannot start {wanted} here: {error.strerror}; see ulimit -n and -u.", CANNOT_START)
    with port:
        code = supervisor.run()
    ranks.forget()
    return code


def _start(job: Job, capacity: int, port: int) -> Start:
    return Start(
        command=job.command,
        base=job.base,
        secret=os.urandom(local.KEY_BYTES),
        capacity=capacity,
        store=local.make_store(),
        master=("127.0.0.1", port),
        start_timeout_s=job.start_timeout_s,
        bind_to=job.hosts.bind_to,
        call=job.call,
        is_elastic=job.elastic is not None,
    )


def _summary(job: Job, cores: int) -> str:
    ranks = len(job.placements)
    text = f"farandole: {ranks} ranks on {job.placements[0].host} ({cores} cores): {' '.join(job.command)}"
    if ranks > cores:
        text += f"\nfarandole: more ranks than cores: they take turns, expect less than {ranks} times the speed."
    return text


def _refuse(job: Job, sentence: str, exit_code: int) -> int:
    job.end(JobEnded(exit_code, tuple(filter(None, [one_line(spoken(sentence))])), is_refused=True))
    return exit_code


# The program that calls `farandole.launch.run` has this as its child, which ends with it


def main() -> NoReturn:
    """Run the job of the program that has called `farandole.launch.run`, and end with it.

    Arguments: the id of the parent, the descriptors that it has handed to us, a cluster and its server.
    """
    parent, spec, pipe, call = map(int, sys.argv[1:5])
    guard.die_with_parent(parent)  # the inner process then finds its lifeline closed, and ends the ranks
    environment.forget_options()
    text = os.pread(spec, os.fstat(spec).st_size, 0).decode()
    sys.exit(_run_spec(text, Caller(call, pipe, *sys.argv[5:7])))


def _run_spec(text: str, caller: Caller) -> int:
    base = environment.inherited()
    try:
        planned = plan(JobSpec.from_json(text), base, print_error, caller)
    except SpecError as error:
        caller.tell(JobEnded(error.exit_code, (str(error),), is_refused=True, field=error.field))
        return error.exit_code
    for sentence in [*planned.notes, *hints(planned)]:
        print_error(sentence)
    return run_job(planned)
