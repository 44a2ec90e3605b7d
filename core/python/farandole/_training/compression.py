"""Gradients that travel as 16-bit floats."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from farandole._api.adapter import DType
from farandole._api.errors import ArgumentTypeError

T = TypeVar("T")

_WIDE = frozenset({DType.FLOAT32, DType.FLOAT64})


class Casts(Protocol[T]):
    """The two functions of an Adapter that compression needs."""

    def describe(self, tensor: T, /) -> tuple[DType, tuple[int, ...]]: ...

    def cast(self, tensor: T, dtype: DType, /) -> T: ...


class Compressor(Protocol[T]):
    """Anything with these two functions can be given as `compression=`."""

    def compress(self, tensor: T, /) -> tuple[T, object]:
        """The tensor to send, of the same shape, and what `decompress` needs to know."""

    def decompress(self, tensor: T, context: object, /) -> T:
        """The tensor that arrived, as the user expects it."""


def check_compressor(compression: object) -> None:
    """Raises ArgumentTypeError for what is none."""
    if not hasattr(compression, "compress"):
        raise ArgumentTypeError(
            f"compression must be a compressor such as Compression.fp16, not {compression!r}"
        ) from None


class _Unchanged(Generic[T]):
    def compress(self, tensor: T, /) -> tuple[T, object]:
        return tensor, None

    def decompress(self, tensor: T, context: object, /) -> T:
        return tensor


class _Narrow(Generic[T]):
    """Casts float32 and float64 to a 16-bit type and back; leaves everything else alone."""

    def __init__(self, casts: Casts[T], dtype: DType) -> None:
        self._casts, self._dtype = casts, dtype

    def compress(self, tensor: T, /) -> tuple[T, object]:
        dtype, _ = self._casts.describe(tensor)
        return (self._casts.cast(tensor, self._dtype), dtype) if dtype in _WIDE else (tensor, None)

    def decompress(self, tensor: T, context: object, /) -> T:
        return self._casts.cast(tensor, context) if isinstance(context, DType) else tensor


class Compression(Generic[T]):
    """The compressors of one framework: `none`, `fp16` and `bf16`.

    fp16 keeps 11 significant bits up to 65504; bf16 keeps 8 over the whole range of float32. Sums of 16-bit values are
    formed in float32 within a host.
    """

    def __init__(self, casts: Casts[T]) -> None:
        self.none: Compressor[T] = _Unchanged()
        self.fp16: Compressor[T] = _Narrow(casts, DType.FLOAT16)
        self.bf16: Compressor[T] = _Narrow(casts, DType.BFLOAT16)
