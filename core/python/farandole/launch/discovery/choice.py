"""The source of hosts that the options of `farandole run` name, and the hosts at the start of a job that has one."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping

from farandole.launch.discovery import source
from farandole.launch.discovery.host_query import UNUSABLE, HostQuery, QueryFailure, ReportedFailures
from farandole.launch.discovery.source import Source
from farandole.launch.hosts import MAX_RANKS, HostList, check_host, parse_count
from farandole.launch.options import elastic_timeout_s, has_discovery, least
from farandole.launch.schedulers import Scheduler
from farandole.launch.spec import JobSpec, SpecError

_LOOK_EVERY_S = 0.02


def named_source(spec: JobSpec) -> Source | None:
    """The source of --host-discovery-script or --host-discovery-service. Raises SpecError."""
    if (
        spec.elastic.slots_per_host is not None
        and spec.elastic.host_discovery_script is None
        and not _may_lack_counts(spec)
    ):
        raise SpecError(
            "--slots-per-host is for hosts of --host-discovery-script or --host-discovery-service.", "slots_per_host"
        )
    if not has_discovery(spec):
        return None
    if spec.where.hosts is not None or spec.where.hostfile is not None:
        raise SpecError(
            "hosts come from discovery or from a list: give one of --host-discovery-... and -H, --hostfile."
        )
    if spec.elastic.host_discovery_service is None:
        return source.script(str(spec.elastic.host_discovery_script), spec.elastic.slots_per_host)
    if spec.elastic.host_discovery_script is not None:
        raise SpecError("give one of --host-discovery-script and --host-discovery-service.", "host_discovery_script")
    try:
        name = check_host(spec.elastic.host_discovery_service)
    except SpecError as error:
        raise SpecError(f"--host-discovery-service: {error}", "host_discovery_service") from None
    return source.service(name, spec.elastic.slots_per_host)


def _may_lack_counts(spec: JobSpec) -> bool:
    return spec.elastic.host_discovery_service is not None or (
        spec.elastic.max_np is not None and spec.where.hostfile is None
    )


def hosts_at_start(
    found: Source, spec: JobSpec, base: Mapping[str, str], say: Callable[[str], None]
) -> tuple[str, HostList]:
    """The number of ranks to start, as for -np, and where; waits for them.

    Raises:
        SpecError: there are too few slots within the time of --start-timeout, or else of --elastic-timeout.
    """
    fewest = least(spec)
    limit_s = spec.ranks.start_timeout or elastic_timeout_s(spec, base)
    hosts = await_hosts(found, base, fewest, limit_s, say)
    wanted = MAX_RANKS if spec.ranks.num_proc in (None, "auto") else parse_count(str(spec.ranks.num_proc), "-np")
    most = min(wanted, spec.elastic.max_np or MAX_RANKS, sum(each.count for each in hosts.slots))
    return str(max(most, fewest)), hosts


def source_of_list(
    spec: JobSpec, listed: HostList | None, scheduler: Scheduler | None, base: Mapping[str, str]
) -> Source | None:
    """The source of a job whose hosts were listed at its start; None where they stay as they are: without --max-np."""
    if spec.elastic.max_np is None:
        return None
    if scheduler is not None and scheduler.hosts is not None:
        hosts = scheduler.hosts
        return Source(scheduler.program, (), lambda _: hosts())
    if scheduler is not None and scheduler.program == "srun":
        return source.slurm(base, listed, spec.elastic.slots_per_host)
    if listed is None:
        return None
    if scheduler is None and spec.where.hostfile is not None and listed.origin.startswith("--hostfile"):
        return source.hostfile(spec.where.hostfile)
    return source.fixed(listed)


def await_hosts(
    asked: Source, environment: Mapping[str, str], slots: int, limit_s: float, say: Callable[[str], None]
) -> HostList:
    """Ask until there are so many slots. `say` gets each kind of failure once.

    Raises:
        SpecError: there are too few within `limit_s` seconds, or the command of the source cannot be run.
    """
    reported_failures, answers = ReportedFailures(), list[HostList | QueryFailure]()
    last: HostList | QueryFailure | None = None
    with selectors.DefaultSelector() as selector:
        query = HostQuery(asked, environment, selector, answers.append)
        began_at = time.monotonic()
        try:
            while (now := time.monotonic()) < began_at + limit_s:
                query.tick(now)
                for key, _ in selector.select(_LOOK_EVERY_S):
                    key.data()
                _reap(query)
                for answer in answers:
                    last = answer
                    if isinstance(answer, QueryFailure):
                        if answer.kind == UNUSABLE:
                            raise SpecError(f"{answer.sentence}.")
                        if reported_failures.is_news(answer):
                            say(f"{answer.sentence}; it is asked again for {limit_s:.0f} s.")
                    elif _count(answer) >= slots:
                        return answer
                    elif reported_failures.is_news(few := _too_few(asked, answer, slots)):
                        say(f"{few.sentence}; waiting for more.")
                answers.clear()
        finally:
            _end(query)
    if isinstance(last, HostList):
        last = _too_few(asked, last, slots)
    why = f"{asked.name} has not answered" if last is None else last.sentence
    raise SpecError(f"{why}; the job was not started within {limit_s:g} s (--start-timeout).")


def _count(hosts: HostList) -> int:
    return sum(each.count for each in hosts.slots)


def _too_few(asked: Source, hosts: HostList, slots: int) -> QueryFailure:
    found = _count(hosts)
    what = f"{asked.name} offers {found} slot{'s' if found > 1 else ''}"
    return QueryFailure(f"few {found}", f"{what}, and --min-np asks for {slots}")


def _reap(query: HostQuery) -> None:
    """Only that child: the program that has called us may have others."""
    pid = query.pid
    if pid is not None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            query.reaped(pid, os.waitstatus_to_exitcode(status))


def _end(query: HostQuery) -> None:
    query.close()
    for _ in range(50):  # a process that sits in the kernel is left to the outer process
        if query.pid is None:
            return
        _reap(query)
        time.sleep(_LOOK_EVERY_S)
