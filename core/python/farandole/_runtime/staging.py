"""Decides where the core gets tensors: in host memory, or on a device, from which the core copies them.

A tensor on a device that is strided is staged in another one beside it. In a world of one rank, and for devices that
the core does not know, the staging tensor is on the host, and who calls waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from farandole._api.adapter import CUDA, Adapter, Buffer, DeviceMemory, DType
from farandole._runtime.native import core

T = TypeVar("T")
# Address to read, address to write (0: the core allocates), dtype, shape.
CallOnHost = tuple[int, int, int, tuple[int, ...]]
CallOnDevice = tuple[int, int, int, tuple[int, ...], int, int]  # and the kind of device, the ready event
Call = CallOnHost | CallOnDevice


class TensorMemory(Generic[T]):
    """Host memory; all that is asked of a tensor here stands in the thread that asks."""

    def __init__(self, adapter: Adapter[T]) -> None:
        self._adapter = adapter

    def buffer(self, tensor: T) -> Buffer | None:
        """The tensor's own memory of this kind, None where it cannot be used as it is."""
        return self._adapter.buffer(tensor)

    def readable(self, tensor: T, dtype: DType, shape: tuple[int, ...]) -> tuple[T, Buffer]:
        """The tensor itself or a staged copy, and its memory."""
        self.await_contents(tensor)
        buffer = self.buffer(tensor)
        return (tensor, buffer) if buffer is not None else self.staged(tensor, dtype, shape)

    def staged(self, tensor: T, dtype: DType, shape: tuple[int, ...]) -> tuple[T, Buffer]:
        """A copy, and its memory."""
        staged = self.empty(tensor, shape, dtype)
        self._adapter.assign(staged, tensor)
        buffer = self.buffer(staged)
        assert buffer is not None, "empty() must have a buffer"
        return staged, buffer

    def await_contents(self, tensor: T) -> None:
        """Return when the core may be told of the tensor."""
        self._adapter.ready(tensor)

    def await_assigned(self, tensor: T) -> None:
        """Return when what this thread has assigned to the tensor is there."""

    def empty(self, like: T, shape: tuple[int, ...], dtype: DType) -> T:
        """A new tensor that has a buffer."""
        return self._adapter.empty(like, shape, dtype, host=True)

    def marked(self, like: T, calls: list[CallOnHost], keep: list[object]) -> Sequence[Call]:
        """The calls as the core wants them; `keep` gets what must live as long as the operation."""
        return calls


class _OnDevice(TensorMemory[T]):
    """A device: the core waits for what the thread has asked of it until `marked`."""

    def __init__(self, adapter: Adapter[T], device: DeviceMemory[T]) -> None:
        super().__init__(adapter)
        self._device = device

    def buffer(self, tensor: T) -> Buffer | None:
        return self._device.buffer(tensor)

    def await_contents(self, tensor: T) -> None:
        pass

    def await_assigned(self, tensor: T) -> None:
        self._adapter.ready(tensor)

    def empty(self, like: T, shape: tuple[int, ...], dtype: DType) -> T:
        return self._adapter.empty(like, shape, dtype)

    def marked(self, like: T, calls: list[CallOnHost], keep: list[object]) -> Sequence[Call]:
        event, kept = self._device.mark(like)
        keep.append(kept)
        return [(*call, CUDA, event) for call in calls]


class MemoryByDevice(Generic[T]):
    """Both, for the tensors of one framework."""

    def __init__(self, adapter: Adapter[T]) -> None:
        self._device = adapter.device
        self._on_host: TensorMemory[T] = TensorMemory(adapter)
        self._on_device = _OnDevice(adapter, adapter.device) if adapter.device else self._on_host

    def of(self, tensors: Iterable[T | None]) -> TensorMemory[T]:
        """The place from which the core takes all of these tensors."""
        device = self._device
        given = [tensor for tensor in tensors if tensor is not None]
        if device is None or not all(map(device.holds, given)):
            return self._on_host
        if len(given) > 1 and len(set(map(device.device_of, given))) > 1 and not core.takes_device_memory():
            return self._on_host  # an operation of the core is of one device
        return self._on_device if core.reads_devices() else self._on_host
