"""Keras's variables on PyTorch, in the form that the core's functions for Keras use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import farandole
import torch

try:
    import keras
except ImportError as error:  # also raised by the framework that Keras would use
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

from farandole_torch._adapter import Compression, Tensor, collectives
from farandole_torch._autograd import operations
from farandole_torch._copies import Tensors
from farandole_torch._exchange import Exchange


class PyTorch:
    """A farandole.plugin.keras.Framework."""

    keras, model = keras, keras.Model
    compression = Compression
    operations = operations
    exchange = Exchange

    def broadcast(self, arrays: Sequence[Any], root_rank: int) -> None:
        handles = [
            collectives.broadcast_async_(variable.value.detach(), root_rank, f"variables.{index}")
            for index, variable in enumerate(arrays)
        ]
        for handle in handles:
            handle.wait()

    step_scalars = farandole.StepScalars
    _tensors = Tensors()

    def copy(self, array: Any, spare: Any) -> Tensor:
        return self._tensors.copy(array.value, spare)

    def write(self, array: Any, copied: Tensor) -> bool:
        return self._tensors.write(array.value, copied)

    def size_bytes(self, array: Any) -> int:
        return self._tensors.size_bytes(array.value)

    def memory(self, array: Any) -> memoryview | None:
        return self._tensors.memory(array.value)

    def read(self, array: Any) -> memoryview:
        return self._tensors.read(array.value)

    def fill(self, array: Any, content: memoryview) -> None:
        self._tensors.fill(array.value, content)

    def tensor(self, value: Any) -> Tensor:
        return torch.as_tensor(value.value if isinstance(value, keras.Variable) else value).detach()

    def result(self, given: Any, tensor: Tensor) -> Any:
        if isinstance(given, Tensor | keras.Variable):
            return tensor
        return tensor.cpu().numpy()[()]  # an array without dimensions becomes a number

    def compiler(self) -> str:
        return ""


FRAMEWORK = PyTorch()
