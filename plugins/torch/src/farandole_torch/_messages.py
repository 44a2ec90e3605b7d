"""Messages from one rank of a group to another, without the other ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from farandole import Handle
from farandole.plugin.distributed import recv_async, send_async

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._group import Group
from farandole_torch._moves import as_known, fill
from farandole_torch._work import Work


class Messages(Group):
    """send, recv and recv_anysource. Messages from one rank with one tag arrive in the order in which they are sent."""

    def send(self, tensors: list[Tensor], target: int, tag: int = 0) -> Work:
        sent = [as_known(each).detach().cpu().resolve_neg().resolve_conj().contiguous() for each in tensors]
        begun = [send_async(_memory_of(each), self._ranks[target], tag, self._process_set, owner=each) for each in sent]
        handles = [Transfer(each, self._limit_s) for each in begun]
        return Work(self, handles, tensors, title="send", inputs=tensors, is_ordered=False)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Work:
        return self._received(tensors, self._ranks[source], tag, "recv")

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        return self._received(tensors, None, tag, "recvAnySource")

    def _received(self, tensors: list[Tensor], source: int | None, tag: int, title: str) -> Work:
        handles = [self._begin_receive(each, source, tag) for each in tensors]
        return Received(self, handles, tensors, title=title, inputs=tensors, is_ordered=False)

    def _begin_receive(self, tensor: Tensor, source: int | None, tag: int) -> Transfer:
        raw = as_known(tensor).detach()
        is_plain = raw.is_cpu and raw.is_contiguous() and not raw.is_neg() and not raw.is_conj()
        got = raw if is_plain else torch.empty(raw.shape, dtype=raw.dtype)
        transfer = recv_async(_memory_of(got), source, tag, self._process_set, owner=got)
        return Transfer(transfer, self._limit_s, None if is_plain else lambda: fill([raw], [got]))

    def _limit_s(self) -> float:
        return self._timeout.total_seconds()


class Transfer(Handle[Any]):
    """A message under way, as a handle. It is canceled after the time limit of a wait."""

    def __init__(self, transfer: Any, limit_s: Callable[[], float], then: Callable[[], None] | None = None) -> None:
        """`limit_s`: returns the default time limit of waits. `then`: called once, after the message."""
        self._transfer, self._default_limit_s, self._then = transfer, limit_s, then
        self._lock = threading.Lock()  # protects `then`

    def done(self) -> bool:
        return bool(self._transfer.done())

    def wait(self, limit_s: float = 0, /) -> None:
        self._transfer.wait(limit_s or self._default_limit_s() or None)
        with self._lock:
            if self._then is not None:
                self._then()
                self._then = None

    def map(self, function: Callable[[Any], Any]) -> Handle[Any]:
        raise NotImplementedError

    @property
    def source(self) -> int:
        """The world rank of the sender. REQUIRES: the message is complete."""
        return int(self._transfer.source)


class Received(Work):
    """Messages being received, perhaps from any rank."""

    def source_rank(self) -> int:
        """Return the sender's number in the group."""
        return self._group.rank_of(self.handles[0].source)  # type: ignore[attr-defined]

    _source_rank = source_rank


def _memory_of(tensor: Tensor) -> tuple[int, int, int, tuple[int, ...]]:
    dtype, shape = collectives.adapter.describe(tensor)
    return tensor.data_ptr(), tensor.data_ptr(), dtype, tuple(shape)
