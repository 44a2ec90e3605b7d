"""The names of `horovod.ray`, which the module `horovod` passes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farandole import ArgumentError

from farandole_ray._discovery import RayHostDiscovery, TestDiscovery, places_of_nodes
from farandole_ray._executor import Callback, RayExecutor
from farandole_ray._settings import Settings

__all__ = ["ElasticRayExecutor", "ElasticSettings", "RayExecutor", "RayHostDiscovery", "TestDiscovery"]


@dataclass(frozen=True)
class ElasticSettings:
    """The result of `ElasticRayExecutor.create_settings`."""

    times: Settings
    least: int
    most: int | None
    reset_limit: int | None
    timeout_s: float


class ElasticRayExecutor:
    """Ranks that come and go with the nodes of a Ray cluster: `RayExecutor(min_workers=...)` by its older name."""

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: int | None = None,
        reset_limit: int | None = None,
        elastic_timeout: float = 600.0,
        timeout_s: float = 30.0,
        ssh_identity_file: str | None = None,
        nics: str | Sequence[str] | None = None,
        min_np: int | None = None,
        max_np: int | None = None,
        **ignored: Any,
    ) -> ElasticSettings:
        """Numbers of ranks, and times.

        Args:
            min_num_proc: the job goes on with so many ranks at least.
            max_num_proc: it has so many at most; by default all that the cluster has at the start.
            reset_limit: end the job at the first change of the ranks after so many.
            elastic_timeout: seconds to wait for enough places, and for living ranks to notice a lost one.
            timeout_s: seconds that the ranks have to start and to meet.
            ssh_identity_file: taken for the sake of Horovod's programs; nothing here uses ssh.
            nics: network interfaces between nodes.
            min_np: the older name of `min_num_proc`.
            max_np: the older name of `max_num_proc`.
            ignored: other settings of Horovod's, which have no meaning here.
        """
        times = RayExecutor.create_settings(timeout_s=timeout_s, ssh_identity_file=ssh_identity_file, nics=nics)
        return ElasticSettings(times, min_np or min_num_proc, max_np or max_num_proc, reset_limit, elastic_timeout)

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: float | None = None,
        env_vars: Mapping[str, str] | None = None,
        override_discovery: bool = True,
    ) -> None:
        """Check the arguments.

        Args:
            settings: see `create_settings`.
            use_gpu: each rank has GPUs.
            cpus_per_slot: Ray's CPUs of each rank.
            gpus_per_slot: GPUs of each rank, by default 1.
            env_vars: variables of the ranks.
            override_discovery: must be true: Ray says which nodes there are.
        """
        if not override_discovery:
            raise ArgumentError(
                "ElasticRayExecutor: the nodes are Ray's; for a discovery of your own call farandole.run with "
                "host_discovery_script=..."
            )
        self._settings, self._variables = settings, dict(env_vars or {})
        self._resources: dict[str, Any] = {
            "use_gpu": use_gpu,
            "cpus_per_worker": cpus_per_slot,
            "gpus_per_worker": gpus_per_slot,
        }

    def start(self) -> None:
        """Connect to Ray. `run` asks it for places."""
        import ray

        if not ray.is_initialized():
            ray.init()

    def run(self, worker_fn: Callable[[], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """Call a function on each rank, and return the results of those that are there at the end."""
        self.start()
        found = sum(places for _, places in places_of_nodes(self._resources))
        most = self._settings.most or max(self._settings.least, found)
        executor = RayExecutor(
            self._settings.times,
            min_workers=self._settings.least,
            max_workers=most,
            reset_limit=self._settings.reset_limit,
            elastic_timeout=self._settings.timeout_s,
            **self._resources,
        )
        executor.start(extra_env_vars=self._variables)
        return executor.run(worker_fn, callbacks=callbacks)
