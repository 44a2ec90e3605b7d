"""The source of hosts that the options of `farandole run` name, and the hosts at the start of a job that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farandole.launch.discovery import source
from farandole.launch.discovery.first import await_hosts
from farandole.launch.discovery.source import Source
from farandole.launch.engines import Engine
from farandole.launch.hosts import MAX_RANKS, HostList, JobError, check_host, parse_count
from farandole.launch.options import elastic_timeout_s, has_discovery, least
from farandole.launch.spec import JobSpec, SpecError


def named_source(spec: JobSpec) -> Source | None:
    """That of --host-discovery-script or --host-discovery-service. Raises SpecError and JobError."""
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
    except JobError as error:
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
        JobError: there are too few slots within the time of --start-timeout, or else of --elastic-timeout.
    """
    fewest = least(spec)
    limit_s = spec.ranks.start_timeout or elastic_timeout_s(spec, base)
    hosts = await_hosts(found, base, fewest, limit_s, say)
    wanted = MAX_RANKS if spec.ranks.num_proc in (None, "auto") else parse_count(str(spec.ranks.num_proc), "-np")
    most = min(wanted, spec.elastic.max_np or MAX_RANKS, sum(each.count for each in hosts.slots))
    return str(max(most, fewest)), hosts


def source_of_list(
    spec: JobSpec, listed: HostList | None, engine: Engine | None, base: Mapping[str, str]
) -> Source | None:
    """The source of a job whose hosts were listed at its start; None where they stay as they are: without --max-np."""
    if spec.elastic.max_np is None:
        return None
    if engine is not None and engine.hosts is not None:
        return source.known(engine.program, engine.hosts)
    if engine is not None and engine.program == "srun":
        return source.slurm(base, listed, spec.elastic.slots_per_host)
    if listed is None:
        return None
    if engine is None and spec.where.hostfile is not None and listed.origin.startswith("--hostfile"):
        return source.hostfile(spec.where.hostfile)
    return source.fixed(listed)
