"""The communicator of a group of vLLM's workers.

    a layer --> GroupCoordinator --> Communicator --> torch.ops.farandole --> the core

Workers meet through vLLM's group of all workers, which has Gloo's backend. Each communicator has a process set of its
own, so that the order of its calls is its own, too.

The operators have neither names nor strings in their arguments, so that torch.compile keeps them in its graph.
"""

from __future__ import annotations

from typing import Any

import farandole
import torch
import torch.distributed as dist
from farandole.plugin.distributed import add_own_process_set, init_as
from farandole.plugin.native import environment_default
from vllm import envs
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

from farandole_torch import operators

_OPERATORS = torch.ops.farandole
_SUM = int(farandole.Sum)
_ALL_REDUCE, _ALL_GATHER = _OPERATORS.all_reduce_.default, _OPERATORS.all_gather_into.default
_REDUCE_SCATTER, _BROADCAST = _OPERATORS.reduce_scatter_into.default, _OPERATORS.broadcast_.default
_SHM_NAMES = ("tp", "pp")  # names of groups for which vLLM would share memory by a name


class Communicator(CpuCommunicator):  # type: ignore[misc]  # vLLM is not read
    """Collectives of one group. See vLLM's DeviceCommunicatorBase."""

    def __init__(
        self,
        cpu_group: dist.ProcessGroup,
        device: torch.device | None = None,
        device_group: dist.ProcessGroup | None = None,
        unique_name: str = "",
        use_all2all: bool = False,
    ) -> None:
        shown = "" if unique_name.startswith(_SHM_NAMES) else unique_name
        super().__init__(cpu_group, device, device_group, shown, use_all2all)
        self.unique_name = unique_name
        _join_world()
        self._group = operators.group_id(add_own_process_set(self.ranks, f"vLLM's {unique_name} {self.ranks}"))

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        whole = input_.contiguous()
        _ALL_REDUCE(whole, _SUM, self._group)
        return whole

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        parts = input_.new_empty((self.world_size, *input_.shape))
        _ALL_GATHER(parts, input_.contiguous(), self._group)
        return parts.movedim(0, dim % input_.dim()).flatten(dim % input_.dim(), dim % input_.dim() + 1)

    def gather(self, input_: torch.Tensor, dst: int = 0, dim: int = -1) -> torch.Tensor | None:
        whole = self.all_gather(input_, dim)
        return whole if self.rank_in_group == dst else None

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        rows = input_.movedim(dim, 0).contiguous()
        mine = rows.new_empty((rows.shape[0] // self.world_size, *rows.shape[1:]))
        _REDUCE_SCATTER(mine, rows, _SUM, self._group)
        return mine.movedim(0, dim).contiguous()

    def broadcast(self, tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
        _BROADCAST(tensor, self.ranks[src], self._group)
        return tensor


def _join_world() -> None:
    """Of all workers. They wait for a living one no longer than the engine waits for them."""
    config = get_current_vllm_config_or_none()
    seconds = config.parallel_config.distributed_timeout_seconds if config else None
    with environment_default("FARANDOLE_TIMEOUT", str(seconds or envs.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS)):
        init_as(dist.get_rank(), dist.get_world_size(), lambda *_: _tell_all)
    ours, theirs = (farandole.rank(), farandole.size()), (dist.get_rank(), dist.get_world_size())
    if ours != theirs:
        raise ValueError(
            f"this worker is rank {theirs[0]} of vLLM's {theirs[1]} and rank {ours[0]} of Farandole's {ours[1]}: "
            "start vLLM without another launcher, or let that number the workers as vLLM does"
        )


def _tell_all(mine: bytes) -> list[bytes]:
    """What all workers say, by their rank."""
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, mine)
    return said
