"""What torch.distributed waits for: an operation of a group that is under way.

A Work must outlive its operation, since it copies the results to where torch wants them. C++ may hold one without a
reference that Python counts, so a group keeps those that were dropped before anybody waited (`Group.dropped`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from farandole import Handle

from farandole_torch._adapter import Tensor
from farandole_torch._private import begin_event, end_event, is_called_by_engine, is_profiler_on

if TYPE_CHECKING:
    from farandole_torch._group import Group


class Work(dist.Work):  # type: ignore[misc]  # torch is not read
    """Operations that are under way; complete when the last of them is."""

    def __init__(
        self,
        group: Group,
        handles: Sequence[Handle[Any]],
        result: list[Any],
        *,
        title: str,
        inputs: Sequence[Tensor] = (),
        limit_s: float = 0,
        is_ordered: bool = True,
    ) -> None:
        """An operation of `group`.

        Args:
            group: where it takes place.
            handles: of the core's operations.
            result: what `result` returns.
            title: what profilers show, after "farandole:".
            inputs: whose shapes they show.
            limit_s: how long `wait` may take; 0: as long as the group allows.
            is_ordered: the ranks' calls are matched by their order, not by a tag.
        """
        super().__init__()
        self._group, self.handles, self._result, self._is_ordered = group, handles, result, is_ordered
        self._limit_s = limit_s
        self._trigger: Any = None  # completes the future
        self._future: Any = None
        self._event: Event | None = None
        self._is_used = False  # somebody has waited, or has the future
        if handles:
            self._show(title, inputs)
        if group.coalesced is not None:
            group.coalesced.append(self)

    def _show(self, title: str, inputs: Sequence[Tensor]) -> None:
        if is_profiler_on():
            self._event = Event(f"farandole:{title}", inputs, self.handles)
            self._group.complete_later(self._event)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until complete; raises the operation's error.

        After `timeout`, by default the group's, it raises a DeadlineError that names the missing ranks. The operation
        stays in flight then, and may be waited for again; a message is given up.
        """
        self._is_used = True
        try:
            self._await_handles((timeout.total_seconds() if timeout else 0) or self._limit_s)
        finally:
            if self._is_over():
                if self._event is not None:
                    self._event.over.wait()
                if self._future is not None:
                    with suppress(RuntimeError):  # which quotes the operation's error
                        self._future.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the results are there; never blocks for long."""
        if not self._is_over():
            return False
        self.exception()  # who polls need not wait: what the core allocated is copied now
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Of an operation that is complete."""
        try:
            self.wait()
        except Exception as error:
            return error
        return None

    def result(self) -> list[Any]:
        return self._result

    def get_future(self) -> Any:
        """An error is a RuntimeError that quotes it. Callbacks run in threads of their own, and may block."""
        self._is_used = True
        with self._group.lock:
            if self._future is None:
                self._trigger = torch.futures.Future(devices=_gpus_of(self._result))
                # An error that `set_exception` sets is a result to C++, where DistributedDataParallel crashes on it.
                self._future = self._trigger.then(self._result_or_error)
                if self._is_over():
                    self.complete_future()
                else:
                    self._have_future_completed(is_called_by_engine(sys._getframe()))
        return self._future

    def complete_future(self) -> None:
        """Wait, and tell who waits for the future."""
        with suppress(Exception):  # `_result_or_error` raises it again
            self._await_handles(self._limit_s)
        self._trigger.set_result(None)

    def is_pending(self) -> bool:
        """Return whether the operation is under way."""
        return not self._is_over()

    def _have_future_completed(self, by_engine: bool) -> None:
        self._group.complete_later(self, has_callbacks=self._is_ordered and not by_engine)

    def _is_over(self) -> bool:
        return all(handle.done() for handle in self.handles)

    def _await_handles(self, limit_s: float) -> None:
        for handle in self.handles:
            handle.wait(limit_s)

    def _result_or_error(self, _: Any) -> list[Any]:
        self._await_handles(self._limit_s)
        return self._result

    def __del__(self) -> None:
        """C++ may still have it: DistributedDataParallel waits in backward for what Join began in forward.

        The memory of a message must outlive it in any case.
        """
        if not self._is_used:
            self._group.keep(self)


class Event:
    """An operation as profilers show it: asynchronous, so it ends in another thread, before a `wait` returns."""

    def __init__(self, title: str, inputs: Sequence[Tensor], handles: Sequence[Handle[Any]]) -> None:
        self.over = threading.Event()
        self._handles = handles
        self._record = begin_event(title, inputs)

    def complete_future(self) -> None:
        for handle in self._handles:
            with suppress(Exception):  # whoever waits for the Work gets it
                handle.wait()
        end_event(self._record)
        self.over.set()


def _gpus_of(result: Any) -> list[torch.device]:
    """Where the tensors of nested lists lie, if not on the host: a future must know it."""
    if isinstance(result, torch.Tensor):
        return [result.device] if result.is_cuda else []
    return [*dict.fromkeys(device for each in result or () for device in _gpus_of(each))]
