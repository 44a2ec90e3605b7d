"""Variables of a graph of TF1, copied and sent through a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from farandole import rank
from farandole.numpy import broadcast_async_


class OfSession:
    """The variables of a state."""

    def __init__(self, session: Any) -> None:
        """Of this session, by default of the one that is current when a variable is used."""
        self._session = session

    def copy(self, array: Any, spare: Any) -> Any:
        return self._current.run(array)

    def write(self, array: Any, copied: Any) -> bool:
        if tuple(array.shape) != copied.shape:
            return False
        array.load(copied, self._current)
        return True

    def broadcast(self, arrays: Sequence[Any], root_rank: int) -> None:
        values = [np.array(value) for value in self._current.run(list(arrays))]
        handles = [broadcast_async_(value, root_rank, f"state.{index}") for index, value in enumerate(values)]
        for handle in handles:
            handle.wait()
        if rank() != root_rank:
            for variable, value in zip(arrays, values, strict=True):
                variable.load(value, self._current)

    def size_bytes(self, array: Any) -> int:
        return int(array.shape.num_elements()) * int(array.dtype.size)

    def memory(self, array: Any) -> None:
        return None

    def read(self, array: Any) -> memoryview:
        value = np.ascontiguousarray(self._current.run(array))
        return value.reshape(-1).view(np.uint8).data

    def fill(self, array: Any, content: memoryview) -> None:
        value = np.frombuffer(content, array.dtype.base_dtype.as_numpy_dtype)
        array.load(value.reshape(tuple(array.shape)), self._current)

    @property
    def _current(self) -> Any:
        session = self._session or tf.compat.v1.get_default_session()
        if session is None:
            raise ValueError("TensorFlowState has no session of TF1: give it session=, or use it in `with session:`")
        return session
