"""Farandole for Lightning 2.6: the strategy "farandole" of its Trainer, and of Fabric.

    import farandole_torch.lightning

    trainer = lightning.Trainer(strategy="farandole", accelerator="cpu")

The launcher of Farandole, or any other that `init` knows, starts the ranks; Lightning starts none. Gradients go through
DistributedDataParallel on the backend "farandole" of torch.distributed, so that all of Lightning's own parts (loops,
precision, accumulation, checkpoints by rank 0, `sync_dist`) are those of its strategy "ddp".
"""

from __future__ import annotations

import atexit
from typing import Any

import farandole
import torch
import torch.distributed as dist

try:
    from lightning.fabric.plugins.environments import ClusterEnvironment
    from lightning.fabric.strategies import STRATEGY_REGISTRY as FABRIC_REGISTRY
    from lightning.fabric.strategies import DDPStrategy as FabricDDPStrategy
    from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
except ImportError as error:
    raise ImportError(
        f"farandole_torch.lightning cannot import the package lightning ({error}): "
        "python -m pip install 'lightning>=2.6'"
    ) from error

import farandole_torch.distributed  # noqa: F401  # makes the backend known
from farandole_torch._gpus import init

__all__ = ["FarandoleEnvironment", "FarandoleFabricStrategy", "FarandoleStrategy"]
_NAME = "farandole"


class FarandoleEnvironment(ClusterEnvironment):  # type: ignore[misc]  # lightning is not read
    """The place of this process, as farandole knows it. Joins the world when it is made.

    Example:
        >>> environment = hvd.FarandoleEnvironment()
        >>> environment.world_size(), environment.global_rank() in (0, 1)
        (2, True)
    """

    def __init__(self) -> None:
        super().__init__()
        init()

    @property
    def creates_processes_externally(self) -> bool:
        """True: a launcher has started the ranks."""
        return True

    @property
    def main_address(self) -> str:
        """Not used: farandole says where the ranks meet."""
        return "127.0.0.1"

    @property
    def main_port(self) -> int:
        """Not used either."""
        return 0

    @staticmethod
    def detect() -> bool:
        """False: the strategy chooses this environment, and no other strategy does."""
        return False

    def world_size(self) -> int:
        """How many ranks there are."""
        return farandole.size()

    def set_world_size(self, size: int) -> None:
        """Nothing: the launcher has said it."""

    def global_rank(self) -> int:
        """This process's rank."""
        return farandole.rank()

    def set_global_rank(self, rank: int) -> None:
        """Nothing: the launcher has said it."""

    def local_rank(self) -> int:
        """Its number on this host."""
        return farandole.local_rank()

    def node_rank(self) -> int:
        """This host's number."""
        return farandole.cross_rank()


class _Placed:
    """The parts of Lightning's "ddp" that both strategies override: ranks and devices are the launcher's."""

    strategy_name = _NAME

    def __init__(self, *args: Any, **options: Any) -> None:
        if options.get("process_group_backend", _NAME) != _NAME:
            raise ValueError(
                f"the strategy farandole has the backend {_NAME!r} and no other: leave process_group_backend= out, or "
                "choose strategy='ddp'"
            )
        options["process_group_backend"] = _NAME
        options.setdefault("cluster_environment", FarandoleEnvironment())
        super().__init__(*args, **options)

    @property
    def root_device(self) -> torch.device:
        devices: list[torch.device] = self.parallel_devices  # type: ignore[attr-defined]
        place = farandole.local_rank()
        if devices[0].type == "cpu" or torch.cuda.device_count() == 1:
            return devices[0]
        if place < len(devices):
            return devices[place]
        raise ValueError(
            f"rank {farandole.rank()} is number {place} on its host, and devices= names {len(devices)} GPUs: leave "
            'devices= out, or set devices="auto"'
        )

    @property
    def num_processes(self) -> int:
        return farandole.local_size()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": farandole.size(), "rank": farandole.rank()}

    def setup_environment(self) -> None:
        """As "ddp" does, with a group that farandole makes: no address or port is named."""
        if not dist.is_initialized():
            dist.init_process_group(_NAME, init_method="farandole://")
            atexit.register(_leave)
        super().setup_environment()  # type: ignore[misc]


class FarandoleStrategy(_Placed, DDPStrategy):  # type: ignore[misc]
    """For `lightning.Trainer(strategy="farandole")`, or as an object, with options of DistributedDataParallel.

    `devices=` and `num_nodes=` of the Trainer do not count: the launcher has said how many ranks there are.

    Example:
        >>> hvd.FarandoleStrategy(find_unused_parameters=True).num_processes
        2
    """

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Make the name known to Lightning."""
        strategy_registry.register(_NAME, cls, description="DistributedDataParallel on Farandole")


class FarandoleFabricStrategy(_Placed, FabricDDPStrategy):  # type: ignore[misc]
    """The same for `lightning.Fabric(strategy="farandole")`.

    Example:
        >>> hvd.FarandoleFabricStrategy().distributed_sampler_kwargs["num_replicas"]
        2
    """

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Make the name known to Fabric."""
        strategy_registry.register(_NAME, cls, description="DistributedDataParallel on Farandole")


def _leave() -> None:
    """At exit, before farandole leaves its world."""
    if dist.is_initialized():
        dist.destroy_process_group()


FarandoleStrategy.register_strategies(StrategyRegistry)
FarandoleFabricStrategy.register_strategies(FABRIC_REGISTRY)
