"""Elastic training with PyTorch: a rank is lost or leaves, and the others go on in the same processes.

state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

@hvd.elastic.run
def train(state): ...

train(state)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from farandole.elastic import Batches, ObjectState, State
from farandole.elastic import ElasticSampler as _ElasticSampler
from farandole.plugin.elastic import StateDictHandler, run_within
from farandole.plugin.elastic import StateHandler as _Handler

from farandole_torch._copies import Tensors
from farandole_torch._loader import DataLoader
from farandole_torch._operator_errors import as_ours
from farandole_torch._optimizer import Distributed
from farandole_torch._optimizer_state import install_state

__all__ = ["Batches", "DataLoader", "ElasticSampler", "ObjectState", "State", "TorchState", "run"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=State)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """As `farandole.elastic.run`, also where an operator of torch.ops.farandole raises an error for the loss of a rank.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     while state.epoch < 2:
        ...         state.epoch += 1
        ...         state.commit()
        >>> state = hvd.elastic.ObjectState(epoch=0)
        >>> train(state)
        >>> state.epoch
        2
    """
    return run_within(as_ours, func)


class _StateOfTensors(ObjectState):
    """An ObjectState whose tensors, modules and optimizers are written in place."""

    def __init__(self, **kwargs: Any) -> None:
        self._arrays = self._tensors = Tensors()
        super().__init__(**kwargs)

    def _handler_of(self, value: Any) -> _Handler | None:
        if isinstance(value, torch.nn.Module):
            return _OfModule(value, self._tensors)
        if isinstance(value, torch.optim.Optimizer):
            return _OfOptimizer(value, self._tensors)
        has_both = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
        return StateDictHandler(value, self._tensors) if has_both and not isinstance(value, type) else None


class TorchState(_StateOfTensors):
    """A state with a model and an optimizer, which stay the objects that they are.

    So do other values with `state_dict()` and `load_state_dict()`, such as schedulers, a GradScaler and a DataLoader of
    this module. `commit()` copies tensors into those of the last commit but one, on the device that they are on, or in
    the host's memory where the device is full: twice the memory of parameters and optimizer is taken.

    `restore()` also drops gradients, and what a DistributedOptimizer knows of the step that failed.

    Example:
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        >>> state = hvd.elastic.TorchState(model, optimizer, epoch=0)
        >>> _ = torch.nn.init.ones_(model.weight)
        >>> state.commit()
        >>> _ = torch.nn.init.zeros_(model.weight)
        >>> state.restore()
        >>> model.weight.item()
        1.0
    """

    def __init__(
        self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None, **kwargs: Any
    ) -> None:
        """The state has these as the attributes `model` and `optimizer`, and those of `kwargs`: see ObjectState."""
        super().__init__(model=model, optimizer=optimizer, **kwargs)

    def _before_sync(self) -> None:
        """Where a handler of one's own is registered, all ranks take rank 0's state."""
        for each in self._registered():
            each.handler.sync()

    def _handler_of(self, value: Any) -> _Handler | None:
        registered = next((handler for kind, handler in _registry if isinstance(value, kind)), None)
        if registered is None or registered in _OWN_HANDLERS:
            return super()._handler_of(value)
        return _Registered(registered(value))

    def _holders(self) -> tuple[list[int], int, bool]:
        holders, age, are_equal = super()._holders()
        return [0] if self._registered() else holders, age, are_equal

    def _check_copies(self) -> None:
        for each in self._registered():
            raise TypeError(
                f"{type(each.handler).__name__}, a handler of set_handler_registry, sends its value to other ranks "
                "only, and this job keeps commits outside of its ranks: give the value state_dict() and "
                "load_state_dict()"
            )

    def _registered(self) -> list[_Registered]:
        return [each for each in self._farandole_handlers() if isinstance(each, _Registered)]


class ElasticSampler(_ElasticSampler, torch.utils.data.Sampler):  # type: ignore[misc, unused-ignore]
    """A sampler for `torch.utils.data.DataLoader` that shares out what is left of a pass to the ranks there are.

    In place of a DistributedSampler. `record_batch` says after each step what is done; give the sampler to the state.
    A `DataLoader` of this module needs neither.

    Example:
        >>> sampler = hvd.elastic.ElasticSampler(range(8), shuffle=False)
        >>> loader = torch.utils.data.DataLoader(range(8), batch_size=2, sampler=sampler)
        >>> for batch_idx, batch in enumerate(loader):
        ...     sampler.record_batch(batch_idx, batch_size=2)
        >>> sampler.processed_num
        8
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """As `farandole.elastic.ElasticSampler`: share out `dataset`, shuffled by `seed` and the pass's number."""
        _ElasticSampler.__init__(self, dataset, shuffle, seed)


class _Module:
    """The state of a torch.nn.Module, most of which is written in place."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._module.state_dict()
        return state

    def load_state_dict(self, values: dict[str, Any]) -> None:
        state = self._module.state_dict()  # knows the versions of the modules' states
        own = {each.data_ptr() for each in (*self._module.parameters(), *self._module.buffers())}
        in_place = (isinstance(each, torch.Tensor) and each.data_ptr() in own for each in values.values())
        if values.keys() == state.keys() and all(in_place):
            return
        for name in [name for name in state if name not in values]:
            del state[name]
        state.update(values)
        self._module.load_state_dict(state)


class _OfModule(StateDictHandler):
    """Of a torch.nn.Module."""

    def __init__(self, value: torch.nn.Module, tensors: Tensors) -> None:
        super().__init__(value, tensors, through=_Module(value))

    def structure(self) -> list[str]:
        found = self.value.state_dict()
        return [f"{name} {_shape(each)}" for name, each in found.items() if isinstance(each, torch.Tensor)]

    def reset(self) -> None:
        self.value.zero_grad(set_to_none=True)


class _Optimizer:
    """The state of a torch.optim.Optimizer, which takes over the tensors that it is given."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._optimizer.state_dict()
        return state

    def load_state_dict(self, values: dict[str, Any]) -> None:
        install_state(self._optimizer, values)


class _OfOptimizer(StateDictHandler):
    """Of a torch.optim.Optimizer."""

    def __init__(self, value: torch.optim.Optimizer, tensors: Tensors) -> None:
        super().__init__(value, tensors, through=_Optimizer(value))

    def structure(self) -> list[str]:
        groups = self.value.param_groups
        return [f"group {i} of {len(group['params'])} parameters" for i, group in enumerate(groups)]

    def reset(self) -> None:
        if isinstance(self.value, Distributed):
            self.value._farandole.forget()
        self.value.zero_grad(set_to_none=True)


def _shape(tensor: torch.Tensor) -> str:
    is_lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
    return "without a shape yet" if is_lazy else str(tuple(tensor.shape))


# ---- Handlers as in Horovod, which programs register for types of their own


class StateHandler:
    """Saves, restores and sends the `value` of an attribute of a TorchState. Derive from it for a type of your own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Copy the value."""
        raise NotImplementedError(f"{type(self).__name__} must have a method save()")

    def restore(self) -> None:
        """Take back the last copy."""
        raise NotImplementedError(f"{type(self).__name__} must have a method restore()")

    def sync(self) -> None:
        """Take over rank 0's value, and save it. Collective."""
        raise NotImplementedError(f"{type(self).__name__} must have a method sync()")

    def set_value(self, value: Any) -> None:
        """Handle another value, which is saved."""
        self.value = value
        self.save()


class _OwnHandler(StateHandler):
    """By a state with this attribute alone."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._state = _StateOfTensors(value=value)
        self.save()

    def save(self) -> None:
        self._state.value = self.value
        self._state.save()

    def restore(self) -> None:
        self._state.restore()
        self.value = self._state.value

    def sync(self) -> None:
        self._state.sync()
        self.value = self._state.value


class ModelStateHandler(_OwnHandler):
    """The handler of a torch.nn.Module."""


class OptimizerStateHandler(_OwnHandler):
    """The handler of a torch.optim.Optimizer."""


class SamplerStateHandler(_OwnHandler):
    """The handler of an ElasticSampler."""


_OWN_HANDLERS = (ModelStateHandler, OptimizerStateHandler, SamplerStateHandler)
_registry: list[tuple[type, type[StateHandler]]] = [
    (ElasticSampler, SamplerStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (torch.nn.Module, ModelStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """The pairs of a type and its handler; a TorchState takes the first that fits the value of an attribute."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Use these pairs from now on: the same on all ranks, and before the states are made."""
    global _registry
    _registry = registry


class _Registered(_Handler):
    """Has a registered handler do the work of a state's own. It sends the value by itself, before the others."""

    def __init__(self, handler: StateHandler) -> None:
        self.handler, self.value = handler, handler.value

    def copy(self) -> None:
        pass

    def keep(self) -> None:
        self.handler.save()

    def restore(self) -> None:
        self.handler.restore()
        self.value = self.handler.value

    def outline(self) -> tuple[object, Sequence[Any]]:
        return None, ()

    def receive(self, outline: Any) -> Sequence[Any]:
        return ()
