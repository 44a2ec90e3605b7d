"""Bytes of a state from the ranks that have it to those that lack it, through alltoalls with uneven splits."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from farandole._api.adapter import DType
from farandole._api.ops import Kind
from farandole._elastic.handlers import Array, Arrays
from farandole._elastic.shares import LAG, Layout, Plan, Range
from farandole._runtime.native import core
from farandole._start import world

Read = Callable[[int, int], Iterator[memoryview]]
Write = Callable[[int, memoryview], None]


def stream_bytes(holders: Sequence[int], takers: Sequence[int], size_bytes: int, content: bytes) -> bytes:
    """The holders' content, of this size, also on takers, who give none. Collective."""
    plan = Plan(size_bytes, tuple(holders), tuple(takers))
    if world.rank() in holders:
        _Stream(plan, lambda begin, end: iter([memoryview(content)[begin:end]]), _no_room).run()
        return content
    room = bytearray(size_bytes)

    def take(begin: int, some: memoryview) -> None:
        room[begin : begin + len(some)] = some

    _Stream(plan, _no_bytes, take).run()
    return bytes(room)


def stream_arrays(holders: Sequence[int], takers: Sequence[int], which: Sequence[Array], arrays: Arrays) -> None:
    """The holders' values, in the takers' arrays, too. Collective."""
    layout = Layout([arrays.size_bytes(each) for each in which])
    plan = Plan(layout.size_bytes, tuple(holders), tuple(takers))
    if world.rank() in holders:
        _Stream(plan, _Source(layout, which, arrays).read, _no_room).run()
    else:
        _Stream(plan, _no_bytes, _Sink(layout, which, arrays).write).run()


def content_of(array: Array, arrays: Arrays) -> memoryview:
    """The bytes of an array, flat: its own memory, or a copy."""
    own = arrays.memory(array)
    return arrays.read(array) if own is None else own


class _Stream:
    """One state on its way, as one rank sees it."""

    def __init__(self, plan: Plan, read: Read, write: Write) -> None:
        """read: the given bytes of a holder's state, in pieces; write: bytes of a taker's from the first one on."""
        self._plan, self._read, self._write = plan, read, write
        self._rank, self._size = world.rank(), world.size()
        self._to_pass_on: deque[memoryview] = deque()  # what a taker has got of the holders, the oldest first

    def run(self) -> None:
        flights: deque[tuple[int, Any]] = deque()
        for number in range(self._plan.rounds):
            if len(flights) == LAG:
                self._land(*flights.popleft())
            flights.append((number, self._start(number)))
        while flights:
            self._land(*flights.popleft())

    def _start(self, number: int) -> Any:
        sent = list(self._plan.sent(self._rank, number))
        splits = [0] * self._size
        for rank, ranges in sent:
            splits[rank] = sum(end - begin for begin, end in ranges)
        content = _joined([some for some in self._content(sent, number) if some])
        memory = (ctypes.c_char * len(content)).from_buffer(content)
        tensor = ctypes.addressof(memory) if content else 0, 0, int(DType.UINT8), (len(content),)
        parameters = f"farandole.elastic.stream.{number % LAG}", 0, 0, 1.0, 1.0, 0
        return core.submit(Kind.ALLTOALL, [tensor], memory, parameters, splits)

    def _content(self, sent: Sequence[tuple[int, list[Range]]], number: int) -> Iterator[memoryview]:
        if self._rank in self._plan.holders:
            for _, ranges in sent:
                for begin, end in ranges:
                    yield from self._read(begin, end)
        elif sent and number >= LAG:
            passed_on = self._to_pass_on.popleft()
            yield from (passed_on for _ in sent)

    def _land(self, number: int, handle: Any) -> None:
        handle.wait()
        if self._rank in self._plan.holders:
            return
        content, at, passed_on = memoryview(handle.outputs()[0]), 0, []
        for (begin, end), is_of_holder in self._plan.received(self._rank, number):
            some = content[at : at + end - begin]
            at += end - begin
            self._write(begin, some)
            if is_of_holder:
                passed_on.append(some)
        if len(self._plan.takers) > 1:
            self._to_pass_on.append(memoryview(b"".join(passed_on)))


class _Source:
    """A holder's arrays."""

    def __init__(self, layout: Layout, which: Sequence[Array], arrays: Arrays) -> None:
        self._layout, self._which, self._arrays = layout, which, arrays
        self._open: tuple[int, memoryview] | None = None  # the last array, since the next bytes are often its, too

    def read(self, begin: int, end: int) -> Iterator[memoryview]:
        for index, (first, last) in self._layout.segments(begin, end):
            if self._open is None or self._open[0] != index:
                self._open = index, content_of(self._which[index], self._arrays)
            yield self._open[1][first:last]


class _Sink:
    """A taker's arrays."""

    def __init__(self, layout: Layout, which: Sequence[Array], arrays: Arrays) -> None:
        self._layout, self._which, self._arrays = layout, which, arrays
        self._rooms: dict[int, memoryview] = {}  # of arrays of which some bytes are there
        self._lacking: dict[int, int] = {}  # how many are not

    def write(self, begin: int, some: memoryview) -> None:
        at = 0
        for index, (first, last) in self._layout.segments(begin, begin + len(some)):
            room = self._room(index)
            room[first:last] = some[at : at + last - first]
            at += last - first
            self._lacking[index] -= last - first
            if not self._lacking[index]:
                self._close(index)

    def _room(self, index: int) -> memoryview:
        if index not in self._rooms:
            array = self._which[index]
            own = self._arrays.memory(array)
            self._lacking[index] = self._arrays.size_bytes(array)
            self._rooms[index] = memoryview(bytearray(self._lacking[index])) if own is None else own
        return self._rooms[index]

    def _close(self, index: int) -> None:
        room = self._rooms.pop(index)
        if self._arrays.memory(self._which[index]) is None:
            self._arrays.fill(self._which[index], room)


def _joined(some: Sequence[memoryview]) -> memoryview | bytearray:
    """All of it in one piece: as it lies where it is one, else a copy."""
    if len(some) == 1 and not some[0].readonly:
        return some[0]
    content = bytearray(sum(map(len, some)))
    at = 0
    for each in some:
        content[at : at + len(each)] = each
        at += len(each)
    return content


def _no_bytes(_begin: int, _end: int) -> Iterator[memoryview]:
    return iter(())


def _no_room(_begin: int, _some: memoryview) -> None:
    pass
