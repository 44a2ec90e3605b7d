"""The interface that a framework's plugin implements: the memory of tensors and a few conversions, but no decisions.

Code that every plugin needs (operations, names, groups, accumulation, compression, objects) lives in this package and
uses an Adapter.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

from farandole._api.errors import ArgumentError

T = TypeVar("T")


class DType(enum.IntEnum):
    """Element types that the core reduces. The numbers match farandole.h, and the rows match the core's types.def."""

    UINT8 = 0, "u", 1
    INT8 = 1, "i", 1
    UINT16 = 2, "u", 2
    INT16 = 3, "i", 2
    INT32 = 4, "i", 4
    INT64 = 5, "i", 8
    FLOAT16 = 6, "f", 2
    BFLOAT16 = 7, "f", 2
    FLOAT32 = 8, "f", 4
    FLOAT64 = 9, "f", 8
    BOOL = 10, "b", 1
    UINT32 = 11, "u", 4
    UINT64 = 12, "u", 8
    COMPLEX64 = 13, "c", 8
    COMPLEX128 = 14, "c", 16

    kind: str
    """The type letter in numpy's array interface: unsigned or signed integer, floating point, bool or complex."""
    itemsize: int
    """Size of one element in bytes."""

    def __new__(cls, number: int, kind: str = "", itemsize: int = 0) -> DType:  # DType(number) finds a member
        dtype = int.__new__(cls, number)
        dtype._value_ = number
        dtype.kind = kind
        dtype.itemsize = itemsize
        return dtype

    @property
    def title(self) -> str:
        """Return the name that users know, such as "float32"."""
        return self.name.lower()

    @property
    def is_floating(self) -> bool:
        """Return whether this is a floating-point type."""
        return self.kind == "f"


CUDA = 1
"""The device kind of the tensors that `DeviceMemory` handles; the number matches farandole.h."""


class Buffer(NamedTuple):
    """Contiguous memory that the core may read and write, as long as `keep` is alive."""

    address: int
    nbytes: int
    keep: object


class DeviceMemory(ABC, Generic[T]):
    """Access to the memory of a framework's tensors on CUDA devices. Stateless."""

    @abstractmethod
    def holds(self, tensor: T) -> bool:
        """Return whether the tensor lies on a CUDA device. The call precedes `describe`, so it may get any object."""

    @abstractmethod
    def device_of(self, tensor: T) -> Hashable:
        """Return the device of a tensor for which `holds` is true. Tensors on the same device give equal results."""

    @abstractmethod
    def buffer(self, tensor: T) -> Buffer | None:
        """Return the device memory of a tensor, or None if the tensor is not contiguous.

        A tensor without elements also has a device address, because the core finds the device by the address.
        """

    @abstractmethod
    def mark(self, tensor: T) -> tuple[int, object]:
        """Return a CUevent after all work that this thread has queued on the tensor's device, and the event's owner."""

    @abstractmethod
    def adopt(self, like: T, address: int, keep: object, shape: tuple[int, ...], dtype: DType) -> T:
        """Return a tensor over contiguous memory on the device of `like`. The memory is valid while `keep` is alive."""


Direct = tuple[int, int, DType, tuple[int, ...]]
"""The addresses to read from and to write to, element type and shape."""


class Adapter(ABC, Generic[T]):
    """The conversions between one framework's tensors and memory. Stateless: one object serves all threads."""

    package = ""
    """The framework's package, if its own code calls the plugin. A search for the user's line skips its frames."""

    array_type: type[T] | None = None
    """A type that the core can read by itself, or None. A tensor of exactly this type is ready, and shows its memory,
    element type and shape through `__array_struct__` (numpy's array interface) or `__dlpack_c_exchange_api__` (DLPack).
    The core calls the methods below only if it cannot use the tensor as it is."""

    shows_memory: Callable[[T], bool] | None = None
    """Return whether the memory of a tensor of `array_type` is on the host. None: it always is. Most calls use this
    before they allocate the result, so it must be cheap. The core checks by itself where the memory is."""

    device: DeviceMemory[T] | None = None
    """Access to tensors on CUDA devices, or None. With it, the core gets such tensors without a copy: a backend uses
    them in place, or the core copies them while the host works. Without it, they go through a host staging tensor."""

    is_profiled: Callable[[], bool] | None = None
    """Return whether a profiler of the framework is active in the calling thread. If so, each call is shown as a
    `span`. Each call uses this, so it must be cheap."""

    def span(self, title: str) -> AbstractContextManager[object]:
        """Return a context that the profiler shows under `title`."""
        return nullcontext()

    @abstractmethod
    def describe(self, tensor: T) -> tuple[DType, tuple[int, ...]]:
        """Return the element type and shape of a tensor.

        Raises:
            TypeError: not a tensor of this framework.
            ValueError: an element type (or layout) that the core does not know; the message names it.
        """

    @abstractmethod
    def buffer(self, tensor: T) -> Buffer | None:
        """Return the tensor's own memory, or None if it is not contiguous or not in this process's memory.

        None makes the operation go through a staging tensor: `empty(host=True)`, `assign`, and `assign` back.
        """

    def pin(self, tensor: T) -> object:
        """Return an object that keeps the memory of `buffer` in place while the object lives; None if impossible."""
        return tensor

    def direct(self, source: T, target: T | None) -> tuple[T, Direct] | None:
        """Return the fast path for a plain host tensor, which avoids most of the calls below; None for other tensors.

        The result is the target (a new tensor like `source` if `target` is None), and where the core reads and writes.
        """
        return None

    def check_target(self, tensor: T) -> None:
        """Raise ValueError or TypeError if `assign` to this tensor would. Called before anything is sent."""
        return None

    def ready(self, tensor: T) -> None:
        """Return once the tensor's contents are computed; needed where a device works asynchronously."""
        return None

    @abstractmethod
    def empty(self, like: T, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> T:
        """Return an uninitialised tensor on the device of `like`; with `host`, the tensor has a `buffer`."""

    def empty_like(self, tensor: T, /) -> T:
        """Return `empty` with the tensor's own shape and element type."""
        dtype, shape = self.describe(tensor)
        return self.empty(tensor, shape, dtype)

    @abstractmethod
    def assign(self, target: T, source: T) -> None:
        """Copy contents between tensors of one shape and element type, across devices.

        Complete on return, or, between tensors on a device of `device`, when `ready(target)` returns in this thread.
        """

    @abstractmethod
    def cast(self, tensor: T, dtype: DType) -> T:
        """Return a tensor with the same contents and another element type.

        Where a device works asynchronously, the given one may be freed at once, and may come from another thread.
        """

    @abstractmethod
    def scale_(self, tensor: T, factor: float) -> None:
        """Multiply a tensor of a floating-point type in place."""

    def names_object(self, name: object) -> bool:
        """Return whether `broadcast_parameters` takes any object under this name of a mapping, not a tensor alone."""
        return False

    def items(self, tensors: object) -> list[tuple[str, T]]:
        """Return (name, tensor) pairs of the argument of `broadcast_parameters`, in the same order on all ranks.

        The default takes a mapping of names to tensors, which it sorts, or an iterable of (name, tensor) pairs or of
        tensors, which are named by their position; None in place of a tensor is left out.

        Raises:
            ValueError: anything else, or a name that comes twice.
        """
        pairs = [(name, tensor) for name, tensor in _pairs(tensors) if tensor is not None]
        for name, tensor in pairs:
            try:
                self.describe(tensor)
            except TypeError as error:
                raise ArgumentError(f"the value of {name!r} is not a tensor: {error}") from None
        if len(dict(pairs)) != len(pairs):
            raise ArgumentError("two tensors have the same name; names must be unique")
        return pairs

    def adopt(self, like: T, memory: memoryview, shape: tuple[int, ...], dtype: DType) -> T:
        """Return a tensor on the device of `like` with the contents of `memory`, which is flat writable bytes.

        The default copies. A framework that can wrap foreign memory and keep `memory` alive overrides this.
        """
        result = self.empty(like, shape, dtype)
        staged = result if self.buffer(result) is not None else self.empty(like, shape, dtype, host=True)
        buffer = self.buffer(staged)
        assert buffer is not None, "empty(host=True) must have a buffer"
        if buffer.nbytes:
            import ctypes

            ctypes.memmove(buffer.address, ctypes.addressof(ctypes.c_char.from_buffer(memory)), buffer.nbytes)
        if staged is not result:
            self.assign(result, staged)
        return result


def _pairs(tensors: object) -> list[tuple[str, Any]]:
    if isinstance(tensors, Mapping):
        return sorted(((str(name), tensor) for name, tensor in tensors.items()), key=lambda pair: pair[0])
    if isinstance(tensors, str) or not isinstance(tensors, Iterable):
        raise ArgumentError(f"expected a mapping or (name, tensor) pairs, not {type(tensors).__name__}")
    return [
        each if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) else (str(position), each)
        for position, each in enumerate(tensors)
    ]
