"""The uses of MXNet that MXNet does not promise. Checked on MXNet 1.9.1, and no other version is accepted.

| name | what for | where |
|---|---|---|
| `mxnet.base._LIB` | MXGetVersion, MXNDArrayGetData: functions of MXNet's C interface | here |
| `mxnet.base.check_call` | raises the error of such a function | here |
| `mxnet.libinfo.find_lib_path` | the library in which the native part looks up functions of MXNet's engine | here |
| `Parameter._init_impl` | a parameter whose shape is not known yet is broadcast when it is initialized | here |
| `Trainer._params` | the parameters, in the order in which the trainer numbers them | here |
| `Trainer._updaters` | the optimizer's states, for commits in memory | here |
| `Optimizer._index_update_count` | how often each parameter was updated, on which Adam's steps depend | here |
| `Trainer._allreduce_grads` | is replaced by one that averages over the ranks | _trainer.py |

The functions of MXNet's engine are listed in csrc/mxnet_api.h. A rule of tests/architecture lets no other module reach
for such names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import mxnet as mx

_library, _check = mx.base._LIB, mx.base.check_call


def version() -> int:
    """10901 for 1.9.1."""
    number = ctypes.c_int()
    _library.MXGetVersion(ctypes.byref(number))
    return number.value


def library_path() -> str:
    """The path of MXNet's library."""
    return str(mx.libinfo.find_lib_path()[0])


def address_of(array: Any) -> int:
    """The address of the array's data in host memory; 0 if it has none."""
    address = ctypes.c_void_p()
    _check(_library.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value or 0


def parameters_of(trainer: Any) -> list[Any]:
    """The parameters of a Gluon Trainer, in its order."""
    parameters: list[Any] = trainer._params
    return parameters


def updater_of(trainer: Any) -> Any:
    """The one that has the optimizer's states, of a Gluon Trainer without a kvstore and with one context."""
    return trainer._updaters[0]


def update_counts_of(optimizer: Any) -> dict[Any, int]:
    """The number of updates of each parameter, in a dict that may be changed."""
    counts: dict[Any, int] = optimizer._index_update_count
    return counts


def when_initialized(parameter: Any, call: Callable[[], Any]) -> None:
    """Call a function once a Gluon parameter whose shape is not known yet has its values."""
    initialize: Callable[..., Any] = parameter._init_impl

    def initialize_and_call(*args: Any, **kwargs: Any) -> None:
        vars(parameter).pop("_init_impl", None)  # what stands before the method: this, or a later call's
        initialize(*args, **kwargs)
        call()

    parameter._init_impl = initialize_and_call
