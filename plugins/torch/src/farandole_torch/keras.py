"""Farandole for Keras 3 on PyTorch: what Horovod's users know as horovod.keras.

    import farandole_torch.keras as hvd  # under KERAS_BACKEND=torch

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Which backend Keras uses is settled when it is first imported.
"""

from collections.abc import Sequence as _Sequence
from typing import Any as _Any

import farandole
import torch as _torch
from farandole import *  # noqa: F403
from farandole.elastic import run as _run
from farandole.plugin.keras import build as _build_keras

try:
    import keras
except ImportError as error:  # also of the framework that Keras would use
    remedy = (
        "install Keras 3: python -m pip install 'keras>=3'"
        if error.name == "keras"
        else "Keras looks for another framework than PyTorch: set the environment variable KERAS_BACKEND=torch before "
        "the program starts"
    )
    raise ImportError(f"farandole_torch.keras cannot import Keras ({error}); {remedy}") from error

if keras.backend.backend() != "torch":
    raise ImportError(
        f"farandole_torch.keras is for Keras on PyTorch, and Keras uses {keras.backend.backend()}: set the environment "
        "variable KERAS_BACKEND=torch before the program starts"
    )

from farandole_torch._adapter import Compression
from farandole_torch._adapter import Tensor as _Tensor
from farandole_torch._adapter import collectives as _collectives
from farandole_torch._autograd import operations as _operations
from farandole_torch._copies import Tensors as _Tensors
from farandole_torch._exchange import Exchange as _Exchange
from farandole_torch._gpus import init
from farandole_torch._loader import DataLoader as _DataLoader


class _PyTorch:
    """A farandole.plugin.KerasFramework."""

    compression = Compression
    operations = _operations
    exchange = _Exchange

    def broadcast(self, arrays: _Sequence[_Any], root_rank: int) -> None:
        handles = [
            _collectives.broadcast_async_(variable.value.detach(), root_rank, f"variables.{place}")
            for place, variable in enumerate(arrays)
        ]
        for handle in handles:
            handle.wait()

    elastic_run = staticmethod(_run)
    elastic_loader = _DataLoader
    step_scalars = farandole.StepScalars
    _tensors = _Tensors()

    def copy(self, array: _Any, spare: _Any) -> _Tensor:
        return self._tensors.copy(array.value, spare)

    def write(self, array: _Any, copied: _Tensor) -> bool:
        return self._tensors.write(array.value, copied)

    def size_bytes(self, array: _Any) -> int:
        return self._tensors.size_bytes(array.value)

    def memory(self, array: _Any) -> memoryview | None:
        return self._tensors.memory(array.value)

    def read(self, array: _Any) -> memoryview:
        return self._tensors.read(array.value)

    def fill(self, array: _Any, content: memoryview) -> None:
        self._tensors.fill(array.value, content)

    def tensor(self, value: _Any) -> _Tensor:
        return _torch.as_tensor(value.value if isinstance(value, keras.Variable) else value).detach()

    def result(self, given: _Any, tensor: _Tensor) -> _Any:
        if isinstance(given, _Tensor | keras.Variable):
            return tensor
        return tensor.cpu().numpy()[()]  # an array without dimensions is a number

    def compiler(self) -> str:
        return ""


_built = _build_keras(keras, _PyTorch(), __name__)
DistributedOptimizer, PartialDistributedOptimizer, load_model, no_sync = _built.training
allgather, allreduce, broadcast, reducescatter = _built.values
callbacks, elastic = _built.callbacks, _built.elastic

__all__ = ["Compression", "init"]
__all__ += [name for name in (*_built.names, *farandole.__all__) if name not in __all__]
