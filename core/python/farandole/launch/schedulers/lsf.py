"""An allocation of LSF: its hosts, and blaunch, LSF's replacement for ssh, as the connection to them.

By LSF's documentation; not run on an LSF.
"""

from __future__ import annotations

from collections.abc import Mapping

from farandole.launch.hosts import HostList, HostSlots, check_host, parse_count
from farandole.launch.messages import shown
from farandole.launch.spec import SpecError

ORIGIN = "LSF's allocation"
_HOSTS = "LSB_MCPU_HOSTS"  # `h1 4 h2 2`


def allocation(environ: Mapping[str, str]) -> HostList | None:
    """The hosts that we run on, each with its slots; None outside and where it is one host. Raises SpecError."""
    text = environ.get(_HOSTS, "")
    if "LSB_JOBID" not in environ or not text:
        return None
    if "LSF_PM_TASKID" in environ:
        raise SpecError("blaunch has started this launcher as a task: start farandole run once, without blaunch.")
    fields = text.split()
    if len(fields) % 2:
        raise SpecError(f"{_HOSTS}={shown(text)} is no list of hosts and slots; give the hosts with -H.")
    pairs = zip(fields[::2], fields[1::2], strict=True)
    slots = tuple(
        HostSlots(check_host(host), parse_count(count, f"{_HOSTS}: the number of slots")) for host, count in pairs
    )
    return HostList(slots, ORIGIN) if len(slots) > 1 else None


def command(host: str, args: list[str]) -> list[str]:
    """The arguments that start an agent on a host of the allocation. blaunch connects stdin, stdout and stderr."""
    return ["blaunch", host, *args]
