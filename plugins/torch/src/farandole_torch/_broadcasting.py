"""Broadcasts one rank's optimizer state, without a step of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from farandole import broadcast_object, rank, size

from farandole_torch._adapter import TORCH_DTYPES, collectives
from farandole_torch._optimizer import Distributed
from farandole_torch._optimizer_state import install_state

_SENT = frozenset(TORCH_DTYPES.values())


@dataclass(frozen=True)
class _Placeholder:
    """A stand-in for a tensor in a state that is sent as an object; the tensor itself follows."""

    index: int
    shape: tuple[int, ...]
    dtype: Any
    device: str  # its type: an optimizer may keep some tensors, such as step counts, on the host, others on the GPU


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: object = None) -> None:
    """Copy rank `root_rank`'s optimizer state to all ranks: momentum, moments, step counts and all options.

    Takes no step and changes nothing on the root. Ranks whose state is still empty receive it; if the root's state is
    empty, the state of all ranks becomes empty. The options of the parameter groups, such as the learning rate, become
    the root's. Tensors have the root's dtypes, even if these differ from the dtypes of the parameters.

    Args:
        optimizer: a torch.optim.Optimizer, distributed or not, over parameters in the same order on all ranks.
        root_rank: the rank whose state all ranks get.
        model: not needed; accepted because Horovod does.

    Raises:
        ValueError: `optimizer` is not an optimizer, or its parameter groups differ from the root's.

    Example:
        >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1 * (hvd.rank() + 1))
        >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        >>> optimizer.param_groups[0]["lr"]
        0.1
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"expected a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if size() == 1:
        return
    is_root = rank() == root_rank
    tensors: list[Any] = []
    outline = _replaced(optimizer.state_dict(), lambda value: _taken_out(value, tensors)) if is_root else None
    name = "optimizer"
    if isinstance(optimizer, Distributed):  # its names distinguish it from an optimizer in another thread
        name = f"optimizer.{min(optimizer._farandole_names.chosen, default='')}"
    outline = broadcast_object(outline, root_rank, name=name)
    if not is_root:
        devices = _devices(optimizer)
        _replaced(outline, lambda value: _new_tensor(value, tensors, devices))
    handles = [collectives.broadcast_async_(each, root_rank, f"{name}.{i}") for i, each in enumerate(tensors)]
    for handle in handles:
        handle.wait()
    if not is_root:
        state = _replaced(outline, lambda value: tensors[value.index] if isinstance(value, _Placeholder) else value)
        install_state(optimizer, state)


def _taken_out(value: Any, tensors: list[Any]) -> Any:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dtype not in _SENT:
        return value  # for example sparse momentum, which is pickled with the rest of the state
    tensors.append(value.detach())
    return _Placeholder(len(tensors) - 1, tuple(value.shape), value.dtype, value.device.type)


def _devices(optimizer: Any) -> dict[str, Any]:
    """Return this rank's device of each type that the parameters are on: the root's GPU may have another number."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {parameter.device.type: parameter.device for parameter in reversed(parameters)}


def _new_tensor(value: Any, tensors: list[Any], devices: dict[str, Any]) -> Any:
    if isinstance(value, _Placeholder):
        tensors.append(torch.empty(value.shape, dtype=value.dtype, device=devices.get(value.device, "cpu")))
    return value


def _replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return the same nest of dicts, lists and tuples with every leaf replaced, visited in order."""
    if isinstance(value, dict):
        return {key: _replaced(item, replace) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(item, replace) for item in value)
    return replace(value)
