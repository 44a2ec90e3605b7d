"""The class from which programs derive compressors of their own. Horovod has one for each framework."""

from __future__ import annotations

from typing import Any


class Compressor:
    """Makes tensors smaller before they are sent. `compression=` takes such a class or an object of it."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send, and what `decompress` needs."""
        raise NotImplementedError("a class derived from Compressor must have its own compress(tensor)")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the received tensor as it was before `compress`."""
        raise NotImplementedError("a class derived from Compressor must have its own decompress(tensor, ctx)")
