"""The places that an executor asks Ray for, as bundles of a placement group. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole import ArgumentError

Resources = Mapping[str, float]


@dataclass(frozen=True)
class Request:
    """Workers, and the resources of each."""

    workers: int
    per_worker: Resources
    per_host: int = 0  # so many workers on each of several hosts; 0 where they may lie anywhere

    @property
    def bundles(self) -> list[dict[str, float]]:
        """A bundle for each worker, or for each host."""
        together = self.per_host or 1
        return [{name: each * together for name, each in self.per_worker.items()}] * (self.workers // together)

    @property
    def strategy(self) -> str:
        """The strategy of the placement group."""
        return "STRICT_SPREAD" if self.per_host else "PACK"

    @property
    def words(self) -> str:
        """The workers as a sentence has them: "4 workers of 1 CPU and 1 GPU each"."""
        amounts = " and ".join(f"{each:g} {name}" for name, each in self.per_worker.items())
        on = f" on {self.workers // self.per_host} nodes" if self.per_host else ""
        return f"{self.workers} worker{'s' * (self.workers > 1)} of {amounts} each{on}"


def make(
    num_workers: int | None,
    num_hosts: int | None,
    per_host: int,
    cpus: float,
    use_gpu: bool,
    gpus: float | None,
) -> Request:
    """The request of RayExecutor's arguments. Raises ArgumentError where they contradict each other."""
    if (num_workers is None) == (num_hosts is None):
        raise ArgumentError("RayExecutor wants num_workers=N, or num_hosts=N and num_workers_per_host=N: one of both.")
    if gpus and not use_gpu:
        raise ArgumentError(f"RayExecutor: gpus_per_worker={gpus:g} has no meaning without use_gpu=True; add it.")
    numbers = {"num_workers": num_workers, "num_hosts": num_hosts, "num_workers_per_host": per_host}
    for name, number in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ArgumentError(f"RayExecutor wants a whole number of at least 1, not {name}={number!r:.60}.")
    per_worker: dict[str, float] = {"CPU": cpus}
    if use_gpu:
        per_worker["GPU"] = gpus or 1
    if any(not 0 <= each < math.inf for each in per_worker.values()):
        amounts = " and ".join(f"{each:g} {name}" for name, each in per_worker.items())
        raise ArgumentError(f"RayExecutor wants CPUs and GPUs of at least 0 for each worker, not {amounts}.")
    if num_hosts is not None:
        return Request(num_hosts * per_host, per_worker, per_host)
    return Request(num_workers or 1, per_worker)


def places(resources: Resources, request: Request) -> int:
    """The number of workers for which these resources are enough."""
    counts = [math.floor(resources.get(name, 0) / each + 1e-9) for name, each in request.per_worker.items() if each]
    return min(counts, default=request.workers)


def refusal(nodes: Sequence[Resources], request: Request, least: int) -> str:
    """The sentence where a cluster of these nodes never has so many places; "" where it has them."""
    found = [places(each, request) for each in nodes]
    have = sum(found)
    if request.per_host:
        have = sum(each >= request.per_host for each in found) * request.per_host
    if have >= least:
        return ""
    on = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    return (
        f"RayExecutor: {request.words} do not fit into the cluster: its {on} have places for {have}; ask for fewer, "
        "add nodes, or wait for those of an autoscaler with create_settings(autoscales=True)."
    )


def waiting(free: Resources, request: Request) -> str:
    """The words about places that others use: "waiting for 9 places, 2 free"."""
    return f"waiting for {request.workers} places, {min(places(free, request), request.workers)} free"


def variables(rank: int, nodes: Sequence[str]) -> dict[str, str]:
    """The place of a rank, where rank r is on nodes[r]; nodes count by their lowest rank."""
    beside = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    local_rank = beside.index(rank)
    level = [node for node in dict.fromkeys(nodes) if nodes.count(node) > local_rank]
    numbers = {
        "RANK": rank,
        "SIZE": len(nodes),
        "LOCAL_RANK": local_rank,
        "LOCAL_SIZE": len(beside),
        "CROSS_RANK": level.index(nodes[rank]),
        "CROSS_SIZE": len(level),
    }
    return {f"FARANDOLE_{name}": str(number) for name, number in numbers.items()}
