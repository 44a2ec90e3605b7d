"""An allocation of PBS Professional, OpenPBS or Torque: its hosts, which ssh reaches.

pbsdsh and pbs_tmrsh would start agents, too, but write their output into the job's files and connect no stdin. By the
documentation; not run on a PBS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from farandole.launch.hosts import MAX_FILE_BYTES, HostList, HostSlots, check_host
from farandole.launch.messages import shown
from farandole.launch.spec import SpecError

ORIGIN = "PBS's allocation"


def allocation(environ: Mapping[str, str]) -> HostList | None:
    """The hosts that we run on, each with as many slots as lines; None outside and where it is one host.

    Raises:
        SpecError: pbsdsh has started us, or the file of PBS_NODEFILE is no list of hosts.
    """
    path = environ.get("PBS_NODEFILE", "")
    if "PBS_JOBID" not in environ or not path:
        return None
    if environ.get("PBS_TASKNUM", "1") != "1":
        raise SpecError("pbsdsh has started this launcher as a task: start farandole run once, without pbsdsh.")
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            names = file.read(MAX_FILE_BYTES).split()
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
        raise SpecError(
            f"PBS_NODEFILE={shown(path)} {why}; give the hosts with -H, or run on the job's first host."
        ) from error
    slots = tuple(HostSlots(check_host(name), count) for name, count in Counter(names).items())
    return HostList(slots, ORIGIN) if len(slots) > 1 else None
