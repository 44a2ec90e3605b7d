"""The state of an optimizer, given back with the dtypes that it had.

torch's `load_state_dict` casts what belongs to a parameter to the parameter's dtype: masters in float32 of a bfloat16
parameter lose bits, counters and flags become floats. A state that comes from another rank, or from a commit, is that
of the same optimizer, and must not change.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch


def install_state(optimizer: Any, state: dict[str, Any]) -> None:
    """`optimizer.load_state_dict(state)`, but every tensor keeps its dtype. Takes over the tensors that it is given.

    Tensors that belong to a parameter go to its device, as in torch. Raises ValueError where the groups do not fit.
    """
    # torch copies the groups deeply, and with a tensor all memory that it is a part of.
    state = {**state, "param_groups": _cloned(state["param_groups"])}
    kind, plain = type(optimizer), torch.optim.Optimizer
    if (kind.load_state_dict, kind.state_dict) == (plain.load_state_dict, plain.state_dict):
        optimizer.load_state_dict({**state, "state": {}})  # the groups
        groups = [each["params"] for each in optimizer.param_groups]
        numbers = itertools.chain.from_iterable(each["params"] for each in state["param_groups"])
        parameters = dict(zip(numbers, itertools.chain.from_iterable(groups), strict=True))
        follows = {id(each): _step_follows(group) for group in optimizer.param_groups for each in group["params"]}
        for key, value in state["state"].items():
            parameter = parameters.get(key)
            if parameter is not None:
                value = _beside(parameter, value, follows[id(parameter)])
            optimizer.state[key if parameter is None else parameter] = value
    else:  # a format of the user's class
        optimizer.load_state_dict(state)
        _undo_casts(optimizer.state_dict(), state)


def _cloned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _cloned(item) for key, item in value.items()}
    return type(value)(map(_cloned, value)) if type(value) in (list, tuple) else value


def _step_follows(group: dict[str, Any]) -> bool:
    """Return whether torch keeps step counts on the parameter's device."""
    return bool(group.get("fused") or group.get("capturable"))


def _beside(parameter: torch.Tensor, value: Any, step_follows: bool, key: object = None) -> Any:
    """The value with its tensors on the parameter's device, but step counts where torch has them on the host."""
    if isinstance(value, torch.Tensor):
        return value if key == "step" and not step_follows else value.to(parameter.device)
    if isinstance(value, dict):
        for name, item in value.items():
            value[name] = _beside(parameter, item, step_follows, name)
    elif type(value) in (list, tuple):
        return type(value)(_beside(parameter, item, step_follows) for item in value)
    return value


def _undo_casts(live: Any, given: Any) -> None:
    """Put back what was given where its copy in the live state is another: a tensor of another dtype, or no tensor."""
    places: Any = (
        range(min(len(given), len(live))) if isinstance(given, list) else [key for key in given if key in live]
    )
    for place in places:
        new, old = live[place], given[place]
        if isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor):
            if new.dtype != old.dtype and new.shape == old.shape:
                live[place] = old.to(new.device)
        elif any(isinstance(new, kind) and isinstance(old, kind) for kind in (dict, list)):
            _undo_casts(new, old)
        else:
            live[place] = old
