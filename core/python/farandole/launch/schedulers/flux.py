"""An instance of Flux, as `flux batch` and `flux alloc` start it: its hosts, and flux exec as the connection to them.

flux run would start agents, too, but gives each the cores of its own task only. By Flux's documentation and its RFCs 20
(resources) and 29 (lists of hosts); not run on a Flux.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from farandole.launch.hosts import MAX_RANKS, HostList, HostSlots, check_host
from farandole.launch.messages import shown
from farandole.launch.spec import SpecError

ORIGIN = "Flux's allocation"
_FLUX_SECONDS = 20
_LIST = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")  # one item of `a[0-1,7],b`
_RANGE = re.compile(r"(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?")


def allocation(environ: Mapping[str, str]) -> HostList | None:
    """The hosts that we run on, with a slot for each GPU, or for each core where there are none; None where it is one.

    Raises:
        SpecError: flux run has started several of us, or Flux does not tell its hosts.
    """
    if "FLUX_URI" not in environ:
        return None
    size = environ.get("FLUX_JOB_SIZE", "1")
    if size != "1":
        raise SpecError(
            f"flux run has started {size if size.isdecimal() else 'several'} launchers: start farandole run once, in "
            "the script of flux batch, or in flux alloc."
        )
    if "FLUX_TASK_RANK" in environ:  # a task, whose instance has more than the task may use
        return None
    slots = tuple(HostSlots(host, count) for host, (_, count) in _resources().items())
    return HostList(slots, ORIGIN) if len(slots) > 1 else None


def command(host: str, args: list[str]) -> list[str]:
    """The arguments that start an agent on a host of the instance. flux exec connects stdin, stdout and stderr."""
    rank, _ = _resources()[host]
    return ["flux", "exec", "--rank", str(rank), *args]


@cache
def _resources() -> dict[str, tuple[int, int]]:
    """Host -> its rank in the instance, and its slots."""
    try:
        done = subprocess.run(
            ["flux", "resource", "R"], capture_output=True, text=True, timeout=_FLUX_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SpecError(f"flux resource R failed ({error}); give the hosts with -H.") from error
    return resources_of(done.stdout)


def resources_of(text: str) -> dict[str, tuple[int, int]]:
    """Flux's JSON about its resources -> host, its rank in the instance, and its slots. Raises SpecError."""
    try:
        execution: dict[str, Any] = json.loads(text)["execution"]
        slots: dict[int, int] = {}
        for entry in execution["R_lite"]:
            children = entry["children"]
            count = len(list(_numbers(children.get("gpu", "")))) or len(list(_numbers(children["core"])))
            slots |= dict.fromkeys((int(rank) for rank in _numbers(str(entry["rank"]))), count)
        names = [name for each in execution["nodelist"] for name in host_names(each)]
        found = dict(zip(names, sorted(slots.items()), strict=True))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(
            f"flux resource R answers {shown(text[:200])}, not its hosts; give the hosts with -H."
        ) from error
    return {check_host(name): place for name, place in found.items()}


def host_names(text: str) -> list[str]:
    """`h[0-1,07],x` -> h0, h1, h07, x. Raises ValueError."""
    names: list[str] = []
    for item in _LIST.findall(text):
        before, _, rest = item.partition("[")
        inside, bracket, after = rest.partition("]")
        names += [f"{before}{number}{after}" for number in _numbers(inside)] if bracket else [item]
    return names


def _numbers(text: str) -> Iterator[str]:
    """`0-2,7` -> 0, 1, 2, 7, as wide as they are written. Raises ValueError."""
    for part in filter(None, text.split(",")):
        match = _RANGE.fullmatch(part)
        first, last = (int(match["first"]), int(match["last"] or match["first"])) if match else (1, 0)
        if match is None or not first <= last < first + MAX_RANKS:
            raise ValueError(part)
        for number in range(first, last + 1):
            yield str(number).zfill(len(match["first"]))
