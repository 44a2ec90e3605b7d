"""The faults of the soak: a table with a row for each kind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from lab import Host
from seen import AGENT, Process

_SLOW_S, _SLICE_S = 3.0, 0.02


class Scene(Protocol):
    """The job and the hosts, as a fault finds them, and the report that it tells of itself."""

    random: Random
    hosts: Sequence[Host]  # the launcher runs on the first one

    def ranks(self) -> list[Process]:
        """The ranks that take steps."""

    def others(self, kind: str) -> list[Process]:
        """The launcher's processes, or those of agents."""

    def hit(self, ranks: Sequence[Process]) -> None:
        """Sentences may name these from now on."""

    def stopped(self, seconds: float) -> None:
        """A rank does not run for so long, so that no step can be done."""

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Act after so many seconds."""

    def list_hosts(self, hosts: Sequence[Host], lie: str = "") -> None:
        """Tell those to the discovery script, or a lie: "nothing", "nonsense", "absent" or "hang"."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    act: Callable[[Scene], str]  # returns words about it


def _victim(scene: Scene) -> Process:
    return scene.random.choice(scene.ranks())


def _signal(process: Process, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signum)


def _send(scene: Scene, signum: int) -> str:
    victim = _victim(scene)
    scene.hit([victim])
    _signal(victim, signum)
    return f"rank {victim.number} on {victim.host}"


def _stop(scene: Scene) -> str:
    seconds = round(scene.random.uniform(1, 20), 1)
    victim = _victim(scene)
    scene.hit([victim])
    scene.stopped(seconds)
    _signal(victim, signal.SIGSTOP)
    scene.later(seconds, lambda: _signal(victim, signal.SIGCONT))
    return f"rank {victim.number} on {victim.host} for {seconds} s"


def _slow(scene: Scene) -> str:
    """Stopped for half of the time, in slices of 20 ms."""
    victim = _victim(scene)
    scene.stopped(_SLOW_S)
    for each in range(round(_SLOW_S / _SLICE_S)):
        signum = signal.SIGCONT if each % 2 else signal.SIGSTOP
        scene.later(each * _SLICE_S, lambda signum=signum: _signal(victim, signum))  # type: ignore[misc]
    return f"rank {victim.number} on {victim.host} for {_SLOW_S} s"


def _host(scene: Scene) -> tuple[Host, list[Process]]:
    """One with ranks, not that of the launcher; and its ranks."""
    ranks = scene.ranks()
    with_ranks = [host for host in scene.hosts[1:] if any(rank.host == host.name for rank in ranks)]
    host = scene.random.choice(with_ranks)
    return host, [rank for rank in ranks if rank.host == host.name]


def _blink(scene: Scene) -> str:
    seconds = round(scene.random.uniform(0.5, 2.5), 1)
    host, ranks = _host(scene)
    scene.hit(ranks)  # TCP sends again after pauses that double, so others may miss them for up to twice as long
    host.blackhole()
    scene.later(seconds, host.heal)
    return f"{host.name} for {seconds} s"


def _cut(scene: Scene) -> str:
    seconds = round(scene.random.uniform(6, 12), 1)
    host, ranks = _host(scene)
    scene.hit(ranks)
    host.blackhole()
    scene.later(seconds, host.heal)
    return f"{host.name} for {seconds} s"


def _gone(scene: Scene) -> str:
    """It is silent at once, and has no process of the job when it is back."""
    seconds = round(scene.random.uniform(5, 10), 1)
    host, ranks = _host(scene)
    scene.hit(ranks)
    host.blackhole()
    for process in [*(each for each in scene.others(AGENT) if each.host == host.name), *ranks]:
        _signal(process, signal.SIGKILL)
    scene.list_hosts([each for each in scene.hosts if each is not host])

    def come_back() -> None:
        host.heal()
        scene.list_hosts(scene.hosts)

    scene.later(seconds, come_back)
    return f"{host.name} for {seconds} s"


def _lie(scene: Scene) -> str:
    lie, seconds = scene.random.choice(["nothing", "nonsense", "absent", "hang"]), 5.0
    scene.list_hosts(scene.hosts, lie)
    scene.later(seconds, lambda: scene.list_hosts(scene.hosts))
    return f"{lie} for {seconds} s"


KINDS = (
    Kind("kill", lambda scene: _send(scene, signal.SIGKILL)),
    Kind("stop", _stop),
    Kind("slow", _slow),
    Kind("leave", lambda scene: _send(scene, signal.SIGTERM)),
    Kind("blink", _blink),
    Kind("cut off", _cut),
    Kind("gone and back", _gone),
    Kind("lie", _lie),
)


class Deck:
    """Draws kinds so that each comes before one comes again."""

    def __init__(self, kinds: Sequence[Kind], random: Random) -> None:
        self._kinds, self._random, self._left = kinds, random, list[Kind]()

    def draw(self) -> Kind:
        """The next kind."""
        if not self._left:
            self._left = [*self._kinds]
            self._random.shuffle(self._left)
        return self._left.pop()
