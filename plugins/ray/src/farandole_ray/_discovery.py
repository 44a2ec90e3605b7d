"""The nodes of a Ray cluster by the names of Horovod's classes for them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from farandole_ray import _request

_MOST = 1 << 14  # ranks, where the user names no number: all that the cluster has


class RayHostDiscovery:
    """The nodes of the cluster, and how many ranks each has places for."""

    def __init__(self, use_gpu: bool = False, cpus_per_slot: float = 1, gpus_per_slot: float = 1) -> None:
        """Each rank needs these resources."""
        self._resources: dict[str, Any] = {
            "use_gpu": use_gpu,
            "cpus_per_worker": cpus_per_slot,
            "gpus_per_worker": gpus_per_slot if use_gpu else None,
        }

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The address of each node that lives -> its places, whoever uses them. Nodes of one address count together."""
        found: dict[str, int] = {}
        for address, places in places_of_nodes(self._resources):
            found[address] = found.get(address, 0) + places
        return {address: places for address, places in found.items() if places}


class TestDiscovery(RayHostDiscovery):
    """Hides nodes of the cluster and shows them again, to try out how a program copes with nodes that come and go."""

    __test__ = False  # pytest need not look for tests in it

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: float = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        """The nodes change while they are asked for.

        Args:
            min_hosts: no node is hidden where there are so few.
            max_hosts: no node is shown again where there are so many.
            change_frequency_s: seconds between two changes.
            use_gpu: as for `RayHostDiscovery`.
            cpus_per_slot: likewise.
            gpus_per_slot: likewise.
            verbose: print each change.
            _graceful: without effect: no node is ended.
        """
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)
        self._least, self._most, self._period_s, self._verbose = min_hosts, max_hosts, change_frequency_s, verbose
        self._hidden: set[str] = set()
        self._changed_at: float | None = None

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """As `RayHostDiscovery`'s, without the nodes that are hidden now."""
        hosts, now = super().find_available_hosts_and_slots(), time.monotonic()
        if self._changed_at is None:
            self._changed_at = now
        elif now - self._changed_at >= self._period_s:
            self._changed_at = now
            self.change_hosts(hosts)
        return {host: slots for host, slots in hosts.items() if host not in self._hidden}

    def change_hosts(self, hosts: Mapping[str, int]) -> None:
        """Hide one of these hosts, or show one again: by chance where both may be."""
        shown = len(hosts.keys() - self._hidden)
        may_hide, may_show = shown > self._least, shown < min(self._most, len(hosts))
        if may_hide and (not may_show or random.random() < 0.5):
            self.remove_host(hosts)
        elif may_show:
            self.add_host(hosts)

    def add_host(self, hosts: Mapping[str, int]) -> None:
        """Show one of these hosts again."""
        self._move(self._hidden & hosts.keys(), "is there again", self._hidden.discard)

    def remove_host(self, hosts: Mapping[str, int]) -> None:
        """Hide one of these hosts."""
        self._move(hosts.keys() - self._hidden, "is hidden", self._hidden.add)

    def _move(self, hosts: set[str], what: str, change: Any) -> None:
        if hosts:
            host = random.choice(sorted(hosts))
            change(host)
            if self._verbose:
                print(f"farandole: {host} {what}.")


def places_of_nodes(resources: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The address of each node, and how many ranks it has places for."""
    import ray

    cpus, gpus = resources["cpus_per_worker"], resources["gpus_per_worker"]
    request = _request.make(_MOST, None, 1, cpus, resources["use_gpu"], gpus)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return [(node["NodeManagerAddress"], _request.places(node["Resources"], request)) for node in nodes]
