"""Broadcasts one rank's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import mxnet as mx
from mxnet.gluon.parameter import DeferredInitializationError

from farandole_mxnet._adapter import NDArray
from farandole_mxnet._operations import broadcast_, collectives
from farandole_mxnet._optimizer import check_contexts
from farandole_mxnet._private import when_initialized


def broadcast_parameters(params: object, root_rank: int = 0, prefix: str | None = None) -> None:
    """Copy rank `root_rank`'s parameters into everybody's, in place; complete on return.

    A parameter of Gluon's whose shape is not known yet is broadcast when it is initialized, by the first forward pass.

    Args:
        params: `net.collect_params()`, the dictionaries of `module.get_params()`, or (name, array) pairs.
        root_rank: whose values all ranks get.
        prefix: distinguishes the names from those of other parameters.

    Raises:
        ValueError: something else, a parameter that was not initialized, or one in several contexts.

    Example:
        >>> weights = {"weight": mx.nd.ones(2) * hvd.rank()}
        >>> hvd.broadcast_parameters(weights, root_rank=1)
        >>> weights["weight"].asnumpy().tolist()
        [1.0, 1.0]
    """
    begin = f"parameters.{prefix or ''}"
    arrays = []
    for name, value in _items(params):
        array = _array(value) if isinstance(value, mx.gluon.Parameter) else value
        if array is None:
            when_initialized(value, partial(_broadcast, value, root_rank, begin + name))
        else:
            array.wait_to_read()  # weights may be in a layout of oneDNN's, which reading their memory undoes
            collectives.adapter.buffer(array)
            arrays.append(broadcast_(array, root_rank, begin + name))
    for array in arrays:
        array.wait_to_read()


def _items(params: Any) -> list[tuple[str, Any]]:
    named = params if isinstance(params, Mapping) or not hasattr(params, "items") else dict(params.items())
    if isinstance(named, Mapping) and any(isinstance(value, mx.gluon.Parameter) for value in named.values()):
        return sorted((str(name), value) for name, value in named.items())
    return collectives.adapter.items(named)


def _array(parameter: Any) -> NDArray | None:
    """The parameter's values; None where they come later."""
    try:
        check_contexts([parameter])
        return parameter.data()
    except DeferredInitializationError:
        return None
    except RuntimeError as error:
        raise ValueError(f"{parameter.name} cannot be broadcast, call initialize() first: {error}") from None


def _broadcast(parameter: Any, root_rank: int, name: str) -> None:
    broadcast_(parameter.data(), root_rank, name)
