"""Passes tensors to the core and back: staging, allocation of outputs, lifetimes. Independent of the operation.

A tensor whose memory the core can use goes as it is; any other, such as a strided one, through a staging tensor
(staging.py):

    tensor --assign--> staged --core, in place--> staged --assign, when complete--> target
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from farandole._api.adapter import Adapter, DType
from farandole._api.calls import Image, Parameters, check_types, refuse_call
from farandole._api.earlier import await_earlier, waits
from farandole._api.errors import ArgumentTypeError
from farandole._api.handles import Handle
from farandole._api.ops import Kind
from farandole._runtime.native import core
from farandole._runtime.profiler import spanned_call, spanned_start
from farandole._runtime.staging import CallOnHost, MemoryByDevice
from farandole._training.recorder import Recorder

if TYPE_CHECKING:
    from farandole._core import Output, Persistent

T = TypeVar("T")


class Submitter(Generic[T]):
    """Starts the core's operations on the tensors of one framework."""

    def __init__(self, adapter: Adapter[T], recorder: Recorder[T] | None = None, spanned: bool = True) -> None:
        """`spanned`: while a profiler of the framework is on, calls are spans of it."""
        self.adapter = adapter
        self._recorder = recorder
        self._array_type, self._shows = adapter.array_type, adapter.shows_memory
        self._empty_like = adapter.empty_like
        self._device = adapter.device
        self._memory = MemoryByDevice(adapter)
        self._is_profiled = adapter.is_profiled if spanned else None
        self._bare: Submitter[T] = Submitter(adapter, recorder, spanned=False) if self._is_profiled else self

    def run(self, kind: Kind, source: T, target: T | None, parameters: Parameters) -> T:
        """Perform one allreduce or broadcast and return `target`, by default a new tensor like `source`."""
        if self._is_profiled is not None and self._is_profiled():
            run = partial(self._bare.run, kind, source, target, parameters)
            return spanned_call(self.adapter.span, kind, parameters, run)
        if target is None and self._recorder is not None and self._recorder.wants(source):
            return self.start(kind, [source], [None], parameters).wait()[0]
        if waits and not parameters[0]:
            await_earlier()
        try:
            if type(source) is self._array_type and (self._shows is None or self._shows(source)):
                result = self._empty_like(source) if target is None else target
                if core.run_one(kind, source, result, None, parameters):
                    return result
            result, call = self._direct(source, target)
            if call is not None:
                core.run_one(kind, source, result, call, parameters)
                return result
        except Exception as error:
            refuse_call(error, parameters)
            raise
        return self.start(kind, [source], [result], parameters).wait()[0]

    def perform(self, kind: Kind, sources: Sequence[T], parameters: Parameters) -> list[T]:
        """Perform one operation on all `sources` and return a new tensor for each."""
        if kind in (Kind.ALLREDUCE, Kind.BROADCAST):
            return self.start(kind, sources, [None] * len(sources), parameters).wait()
        return self.collect(kind, sources, parameters).wait()

    def carried(
        self,
        kind: Kind,
        parameters: Parameters | Callable[[], Parameters],
        wanted: Sequence[tuple[str, object]],
        image: Image | None,
        otherwise: Callable[[list[T], object], object],
    ) -> Callable[[list[T], object], object]:
        """`otherwise`, but the core itself performs the calls that `carry` takes (_core.pyi), in less time."""
        if self._array_type is None:
            return otherwise
        terms = (kind, self._array_type, self._is_profiled or bool, waits, parameters, tuple(wanted), image, otherwise)
        return partial(core.carry, terms)  # no function of C's own: pybind11 takes such for a method of C++

    def prepare(self, kind: Kind, tensor: T, parameters: Parameters) -> Persistent[T] | Repeated[T]:
        """`run` in place on this tensor, as often as is wanted; in less time where the core can use its memory."""
        adapter = self.adapter
        dtype, shape = adapter.describe(tensor)
        adapter.check_target(tensor)
        on_device = self._device is not None and self._device.holds(tensor)
        buffer = None if on_device else adapter.buffer(tensor)
        pin = None if buffer is None else adapter.pin(tensor)
        if buffer is None or pin is None:
            check_types(parameters)
            return Repeated(self, kind, tensor, parameters)
        adapter.ready(tensor)
        call = buffer.address, buffer.address, dtype, shape
        try:
            return core.prepare(kind, tensor, (buffer.keep, pin), call, parameters)
        except TypeError:
            check_types(parameters)
            raise

    def start_one(self, kind: Kind, source: T, target: T | None, parameters: Parameters) -> Handle[T]:
        """`start` of one tensor; the short way of what is called for every gradient."""
        if self._is_profiled is not None and self._is_profiled():
            start = partial(self._bare.start_one, kind, source, target, parameters)
            return spanned_start(self.adapter.span, kind, parameters, start)
        if target is None and self._recorder is not None and self._recorder.wants(source):
            return self.start(kind, [source], [None], parameters).map(_only)
        if waits and not parameters[0]:
            await_earlier()
        try:
            if type(source) is self._array_type and (self._shows is None or self._shows(source)):
                result = self._empty_like(source) if target is None else target
                native = core.submit_one(kind, source, result, None, parameters)
                if native is not None:
                    return native
            result, call = self._direct(source, target)
            if call is not None:
                native = core.submit_one(kind, source, result, call, parameters)
                return native
        except Exception as error:
            refuse_call(error, parameters)
            raise
        return self.start(kind, [source], [result], parameters).map(_only)

    def start(
        self, kind: Kind, sources: Sequence[T], targets: Sequence[T | None], parameters: Parameters
    ) -> Handle[list[T]]:
        """Start an allreduce or broadcast of all `sources`, as one call, into `targets` (None: a new tensor)."""
        if self._is_profiled is not None and self._is_profiled():
            start = partial(self._bare.start, kind, sources, targets, parameters)
            return spanned_start(self.adapter.span, kind, parameters, start)
        if waits and not parameters[0]:
            await_earlier()
        late: list[tuple[T, T]] = []
        results: list[T] = []
        try:
            memory = self._memory.of([*sources, *targets])
            calls: list[CallOnHost] = []
            keep: list[object] = []
            for source, given in zip(sources, targets, strict=True):
                dtype, shape = self.adapter.describe(source)
                target = self.adapter.empty(source, shape, dtype) if given is None else given
                sent, buffer = memory.readable(source, dtype, shape)
                destination = buffer if target is source else memory.buffer(target)
                if sent is not source or destination is None:  # reduce in the staging tensor, copy from there
                    self.adapter.check_target(target)
                    sent, buffer = (sent, buffer) if sent is not source else memory.staged(source, dtype, shape)
                    destination = buffer
                    late.append((target, sent))
                calls.append((buffer.address, destination.address, dtype, shape))
                keep.append((source, sent, target, buffer.keep, destination.keep))
                results.append(target)
            native = core.submit(kind, memory.marked(sources[0], calls, keep), keep, parameters)
        except Exception as error:
            refuse_call(error, parameters)
            raise

        def finish(_: None) -> list[T]:
            for target, staged in late:
                self.adapter.assign(target, staged)
            # Before the staging tensors go: this thread's stream may not be the one that their memory belongs to.
            for each in late:
                memory.await_assigned(each[0])
            return results

        handle = native.map(finish)
        recorder = self._recorder_of(sources) if targets[0] is None else None
        return handle if recorder is None else handle.map(recorder.record(kind, sources, parameters, ()))

    def collect(
        self,
        kind: Kind,
        sources: Sequence[T],
        parameters: Parameters,
        splits: Sequence[int] = (),
        also_like: T | None = None,
    ) -> Handle[list[T]]:
        """Start what the core allocates the results of, for all `sources` as one call; the results are new tensors.

        With `also_like`, the numbers of rows received follow, as a tensor of int64 where that one is.
        """
        if self._is_profiled is not None and self._is_profiled():
            start = partial(self._bare.collect, kind, sources, parameters, splits, also_like)
            return spanned_start(self.adapter.span, kind, parameters, start)
        if waits and not parameters[0]:
            await_earlier()
        recorder = self._recorder_of(sources)
        if recorder is not None and kind is Kind.ALLTOALL and also_like is None:
            also_like = sources[0]
        calls: list[CallOnHost] = []
        keep: list[object] = []
        try:
            memory = self._memory.of(sources)
            for source in sources:
                dtype, shape = self.adapter.describe(source)
                sent, buffer = memory.readable(source, dtype, shape)
                calls.append((buffer.address, 0, dtype, shape))
                keep.append((sent, buffer.keep))
            native = core.submit(kind, memory.marked(sources[0], calls, keep), keep, parameters, splits)
        except Exception as error:
            refuse_call(error, parameters)
            raise
        likes = [*sources] if also_like is None else [*sources, also_like]

        def finish(_: None) -> list[T]:
            return [self._adopted(like, output) for like, output in zip(likes, native.outputs(), strict=False)]

        handle = native.map(finish)
        return handle if recorder is None else handle.map(recorder.record(kind, sources, parameters, splits))

    def _recorder_of(self, sources: Sequence[T]) -> Recorder[T] | None:
        """The recorder, where it wants what comes of these."""
        recorder = self._recorder
        return recorder if recorder is not None and any(map(recorder.wants, sources)) else None

    def _adopted(self, like: T, output: Output) -> T:
        shape, dtype = tuple(output.shape), DType(output.dtype)
        if output.on_device:
            assert self._device is not None, "who hands over none gets none"
            return self._device.adopt(like, output.address, output, shape, dtype)
        return self.adapter.adopt(like, memoryview(output), shape, dtype)

    def _direct(self, source: T, target: T | None) -> tuple[T, CallOnHost | None]:
        """The target, and the core's view of both tensors in host memory; None for what `start` has to look at."""
        adapter = self.adapter
        if (found := adapter.direct(source, target)) is not None:
            return found
        dtype, shape = adapter.describe(source)
        result = adapter.empty(source, shape, dtype) if target is None else target
        if self._device is not None and self._device.holds(source):
            return result, None
        adapter.ready(source)
        buffer = adapter.buffer(source)
        destination = buffer if result is source else adapter.buffer(result)
        if buffer is None or destination is None:
            return result, None
        return result, (buffer.address, destination.address, dtype, shape)


def _only(results: list[T]) -> T:
    return results[0]


class Repeated(Generic[T]):
    """As `Persistent` of the core, for memory on a device, strided or not to be pinned: each call looks at it again."""

    def __init__(self, submitter: Submitter[T], kind: Kind, tensor: T, parameters: Parameters) -> None:
        self.tensor = tensor
        self._run = partial(submitter.run, kind, tensor, tensor, parameters)
        self._start = partial(submitter.start_one, kind, tensor, tensor, parameters)

    def __call__(self, *given: object) -> T:
        if given:
            raise ArgumentTypeError("a persistent operation takes no arguments: they were fixed when it was created")
        return self._run()

    def start(self) -> Handle[T]:
        return self._start()
