"""The source of hosts that the options of `farandole run` name, and the hosts at the start of a job that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farandole.launch.discovery import source
from farandole.launch.discovery.first import await_hosts
from farandole.launch.discovery.source import Source
from farandole.launch.engines import Engine
from farandole.launch.hosts import MAX_RANKS, HostList, JobError, check_host, parse_count
from farandole.launch.options import OptionError, RunOptions, elastic_timeout_s, has_discovery, least


def named_source(options: RunOptions) -> Source | None:
    """That of --host-discovery-script or --host-discovery-service. Raises OptionError and JobError."""
    if options.slots_per_host is not None and options.host_discovery_script is None and not _may_lack_counts(options):
        raise OptionError("--slots-per-host is for hosts of --host-discovery-script or --host-discovery-service.")
    if not has_discovery(options):
        return None
    if options.hosts is not None or options.hostfile is not None:
        raise OptionError(
            "hosts come from discovery or from a list: give one of --host-discovery-... and -H, --hostfile."
        )
    if options.host_discovery_service is None:
        return source.script(str(options.host_discovery_script), options.slots_per_host)
    if options.host_discovery_script is not None:
        raise OptionError("give one of --host-discovery-script and --host-discovery-service.")
    try:
        name = check_host(options.host_discovery_service)
    except JobError as error:
        raise OptionError(f"--host-discovery-service: {error}") from None
    return source.service(name, options.slots_per_host)


def _may_lack_counts(options: RunOptions) -> bool:
    return options.host_discovery_service is not None or (options.max_np is not None and options.hostfile is None)


def hosts_at_start(
    found: Source, options: RunOptions, base: Mapping[str, str], say: Callable[[str], None]
) -> tuple[str, HostList]:
    """The number of ranks to start, as for -np, and where; waits for them.

    Raises:
        JobError: there are too few slots within the time of --start-timeout, or else of --elastic-timeout.
    """
    fewest = least(options)
    limit_s = options.start_timeout or elastic_timeout_s(options, base)
    hosts = await_hosts(found, base, fewest, limit_s, say)
    wanted = MAX_RANKS if options.num_proc in (None, "auto") else parse_count(str(options.num_proc), "-np")
    most = min(wanted, options.max_np or MAX_RANKS, sum(each.count for each in hosts.slots))
    return str(max(most, fewest)), hosts


def source_of_list(
    options: RunOptions, listed: HostList | None, engine: Engine | None, base: Mapping[str, str]
) -> Source | None:
    """The source of a job whose hosts were listed at its start; None where they stay as they are: without --max-np."""
    if options.max_np is None:
        return None
    if engine is not None and engine.program == "srun":
        return source.slurm(base, listed, options.slots_per_host)
    if listed is None:
        return None
    if engine is None and options.hostfile is not None and listed.origin.startswith("--hostfile"):
        return source.hostfile(options.hostfile)
    return source.fixed(listed)
