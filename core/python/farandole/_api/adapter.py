"""The part that a framework's plugin supplies: where a tensor's memory is, and a handful of conversions. No decisions.

Everything that two plugins would otherwise both contain (operations, names, groups, accumulation, compression, objects)
lives once in this package and is handed an Adapter.
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
    """Element types the core reduces: the numbers are those of farandole.h, the rows those of the core's types.def."""

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
    """The letter of numpy's array interface: unsigned, signed integer, floating point, bool or complex."""
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
        """The name users know, such as "float32"."""
        return self.name.lower()

    @property
    def is_floating(self) -> bool:
        """Returns whether its values have fractions."""
        return self.kind == "f"


CUDA = 1
"""The kind of device that `DeviceMemory` speaks of; the number is that of farandole.h."""


class Buffer(NamedTuple):
    """Contiguous memory that the core may read and write, as long as `keep` is alive."""

    address: int
    nbytes: int
    keep: object


class DeviceMemory(ABC, Generic[T]):
    """A framework's tensors on CUDA devices, as the core takes them. Stateless."""

    @abstractmethod
    def holds(self, tensor: T) -> bool:
        """Returns whether the tensor lies on a CUDA device. The call precedes `describe`, so it may get any object."""

    @abstractmethod
    def device_of(self, tensor: T) -> Hashable:
        """The device of a tensor for which `holds` is true; equal for tensors of one device."""

    @abstractmethod
    def buffer(self, tensor: T) -> Buffer | None:
        """The memory on its device of a tensor that lies there, or None where it is not contiguous.

        A tensor without elements has an address there, too: by it the core knows which device it is.
        """

    @abstractmethod
    def mark(self, tensor: T) -> tuple[int, object]:
        """An event (CUevent) behind all that this thread has asked of the tensor's device, and what keeps it alive."""

    @abstractmethod
    def adopt(self, like: T, address: int, keep: object, shape: tuple[int, ...], dtype: DType) -> T:
        """A tensor over contiguous memory on the device of `like`, which is valid as long as `keep` is alive."""


Direct = tuple[int, int, DType, tuple[int, ...]]
"""The addresses to read from and to write to, element type and shape."""


class Adapter(ABC, Generic[T]):
    """The conversions between one framework's tensors and memory. Stateless: one object serves all threads."""

    package = ""
    """The framework's, where its own code calls the plugin: what looks for the user's line passes over its frames."""

    array_type: type[T] | None = None
    """A short way, where there is one: what is of exactly this type shows its memory, element type and shape through
    `__array_struct__` (numpy's array interface) or `__dlpack_c_exchange_api__` (DLPack's), and is ready. The core then
    reads them by itself; only where it cannot use them as they are the methods below are asked."""

    shows_memory: Callable[[T], bool] | None = None
    """Returns whether a tensor of `array_type` does so: its memory is the host's. None: all do. Most calls ask, before
    they make a tensor for the result, so this must be cheap; the core sees by itself whose memory it is."""

    device: DeviceMemory[T] | None = None
    """Where there is one, tensors on CUDA devices are given to the core as they lie there; a backend takes them so, or
    the core copies them beside the host's work. Else the operation goes through a staging tensor on the host."""

    is_profiled: Callable[[], bool] | None = None
    """Returns whether a profiler of the framework is on in the calling thread. While it is, each call is a `span`. Each
    call asks, so this must be cheap."""

    def span(self, title: str) -> AbstractContextManager[object]:
        """A context that the profiler shows under `title`."""
        return nullcontext()

    @abstractmethod
    def describe(self, tensor: T) -> tuple[DType, tuple[int, ...]]:
        """Element type and shape of a tensor.

        Raises:
            TypeError: not a tensor of this framework.
            ValueError: an element type (or layout) that the core does not know; the message names it.
        """

    @abstractmethod
    def buffer(self, tensor: T) -> Buffer | None:
        """The tensor's own memory, or None where it is not contiguous or not in this process's memory.

        None makes the operation go through a staging tensor: `empty(host=True)`, `assign`, and `assign` back.
        """

    def pin(self, tensor: T) -> object:
        """An object that, while it lives, keeps the memory of `buffer` where it is; None where none can."""
        return tensor

    def direct(self, source: T, target: T | None) -> tuple[T, Direct] | None:
        """A short way for plain tensors of the host, which saves most of the calls below; None for all others.

        Returns the target (given None, a new tensor like `source`), and where the core reads and writes.
        """
        return None

    def check_target(self, tensor: T) -> None:
        """Raise ValueError or TypeError where `assign` to this tensor would; asked before anything is sent."""
        return None

    def ready(self, tensor: T) -> None:
        """Return once the tensor's contents are computed; needed where a device works asynchronously."""
        return None

    @abstractmethod
    def empty(self, like: T, shape: tuple[int, ...], dtype: DType, *, host: bool = False) -> T:
        """A new tensor with undefined contents, on the device of `like`; with `host`, one that has a `buffer`."""

    def empty_like(self, tensor: T, /) -> T:
        """`empty` with the tensor's own shape and element type."""
        dtype, shape = self.describe(tensor)
        return self.empty(tensor, shape, dtype)

    @abstractmethod
    def assign(self, target: T, source: T) -> None:
        """Copy contents between tensors of one shape and element type, across devices.

        Complete on return, or, between tensors on a device of `device`, when `ready(target)` returns in this thread.
        """

    @abstractmethod
    def cast(self, tensor: T, dtype: DType) -> T:
        """A tensor of the same contents with another element type.

        Where a device works asynchronously, the given one may be freed at once, and may come from another thread.
        """

    @abstractmethod
    def scale_(self, tensor: T, factor: float) -> None:
        """Multiply in place; the tensor is of a floating type."""

    def names_object(self, name: object) -> bool:
        """Returns whether `broadcast_parameters` takes any object under this name of a mapping, not a tensor alone."""
        return False

    def items(self, tensors: object) -> list[tuple[str, T]]:
        """(name, tensor) pairs of what users hand to `broadcast_parameters`, in an order that is equal on all ranks.

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
        """A tensor on the device of `like` with the contents of `memory`, flat writable bytes.

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
