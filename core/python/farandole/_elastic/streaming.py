"""Sends the bytes of a state from the ranks that have it to those that lack it, in alltoalls with uneven splits.

The state is one range of bytes and travels in pieces. A piece is cut into a stripe for each taker, and a stripe into a
part of each holder:

    piece 1   holders: parts of stripe t -> taker t
    piece 2   holders: likewise                        takers, of piece 1: stripe t -> the other takers

So all holders send the same amount, and each byte leaves the holders once, whatever the number of takers.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from farandole._api.adapter import DType
from farandole._api.ops import Kind
from farandole._elastic.handlers import Array, Arrays
from farandole._runtime.native import core
from farandole._start import world

_PIECE_BYTES = 12 << 20  # smaller pieces wait more often, larger ones leave the caches

Range = tuple[int, int]
"""Bytes of the state: the first one, and the one after the last."""


def stream_bytes(holders: Sequence[int], takers: Sequence[int], size_bytes: int, content: bytes) -> bytes:
    """Return the content of the holders, of `size_bytes`, on all ranks. Collective. Takers' `content` is ignored."""
    room = memoryview(bytearray(size_bytes if world.rank() in takers else content))

    def write(begin: int, some: memoryview) -> None:
        room[begin : begin + len(some)] = some

    _Stream(holders, takers, lambda begin, end: [room[begin:end]], write).run(size_bytes)
    return bytes(room)


def stream_arrays(holders: Sequence[int], takers: Sequence[int], which: Sequence[Array], arrays: Arrays) -> None:
    """Copy the holders' values into the takers' arrays. Collective."""
    joined = _Joined(which, arrays)
    _Stream(holders, takers, joined.read, joined.write).run(joined.layout.size_bytes)


def content_of(array: Array, arrays: Arrays) -> memoryview:
    """Return the bytes of an array, flat: its own memory, or a copy."""
    own = arrays.memory(array)
    return arrays.read(array) if own is None else own


class _Stream:
    """One state in transit, as seen by one rank."""

    def __init__(
        self,
        holders: Sequence[int],
        takers: Sequence[int],
        read: Callable[[int, int], Sequence[memoryview]],
        write: Callable[[int, memoryview], None],
    ) -> None:
        """`holders` and `takers` are in ascending order. Holders call `read`, and takers `write`."""
        self._holders, self._takers, self._read, self._write = holders, takers, read, write
        self._rank = world.rank()

    def run(self, size_bytes: int) -> None:
        flights: deque[tuple[Range, Any]] = deque()
        for number, begin in enumerate(range(0, size_bytes if self._takers else 0, _PIECE_BYTES)):
            piece = begin, min(begin + _PIECE_BYTES, size_bytes)
            flights.append((piece, self._start(number, piece)))
            if len(flights) > 1:
                self._land(*flights.popleft())
        for flight in flights:
            self._land(*flight)

    def _start(self, number: int, piece: Range) -> Any:
        sent: dict[int, list[memoryview]] = {}
        if self._rank in self._holders:
            me = self._holders.index(self._rank)
            for taker in self._takers:
                part = _cut(self._stripe(piece, taker), len(self._holders), me)
                sent[taker] = [*self._read(*part)]
        return _alltoall(f"farandole.elastic.stream.{number % 2}", sent)

    def _land(self, piece: Range, handle: Any) -> None:
        """Wait for a piece; the takers exchange their stripes of it."""
        handle.wait()
        if self._rank in self._takers:
            mine = memoryview(handle.outputs()[0])
            self._write(self._stripe(piece, self._rank)[0], mine)
        if len(self._takers) == 1:
            return
        others = [taker for taker in self._takers if taker != self._rank]
        takes = self._rank in self._takers
        handle = _alltoall("farandole.elastic.passed", {taker: [mine] for taker in others} if takes else {})
        handle.wait()
        if takes:
            received, at = memoryview(handle.outputs()[0]), 0
            for begin, end in (self._stripe(piece, taker) for taker in others):
                self._write(begin, received[at : at + end - begin])
                at += end - begin

    def _stripe(self, piece: Range, taker: int) -> Range:
        return _cut(piece, len(self._takers), self._takers.index(taker))


def _cut(whole: Range, count: int, place: int) -> Range:
    """Return part `place` of `count` equal parts."""
    begin, size = whole[0], whole[1] - whole[0]
    return begin + size * place // count, begin + size * (place + 1) // count


def _alltoall(name: str, sent: dict[int, list[memoryview]]) -> Any:
    """Start an alltoall. `sent` has what goes to each receiver, in the order of ranks."""
    splits = [sum(map(len, sent.get(rank, ()))) for rank in range(world.size())]
    content = bytearray().join(some for each in sent.values() for some in each)
    memory = (ctypes.c_char * len(content)).from_buffer(content)
    tensor = ctypes.addressof(memory) if content else 0, 0, int(DType.UINT8), (len(content),)
    return core.submit(Kind.ALLTOALL, [tensor], memory, (name, 0, 0, 1.0, 1.0, 0), splits)


class Layout:
    """Arrays of these sizes one after the other, as one range of bytes."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._begins = [0, *accumulate(sizes)]

    @property
    def size_bytes(self) -> int:
        """Return the size of all arrays together, in bytes."""
        return self._begins[-1]

    def segments(self, begin: int, end: int) -> Iterator[tuple[int, Range]]:
        """Yield the arrays that contain these bytes, and the range in each."""
        while begin < end:
            index = bisect_right(self._begins, begin) - 1
            start = self._begins[index]
            stop = min(end, self._begins[index + 1])
            yield index, (begin - start, stop - start)
            begin = stop


class _Joined:
    """The arrays of a holder or a taker as one range of bytes."""

    def __init__(self, which: Sequence[Array], arrays: Arrays) -> None:
        self._which, self._arrays = which, arrays
        self.layout = Layout([arrays.size_bytes(each) for each in which])
        self._open: tuple[int, memoryview] = -1, memoryview(b"")  # of a holder: the last array read
        self._rooms: dict[int, memoryview] = {}  # of a taker: arrays that have received some of their bytes
        self._lacking: dict[int, int] = {}  # how many bytes these still lack

    def read(self, begin: int, end: int) -> list[memoryview]:
        found = []
        for index, (first, last) in self.layout.segments(begin, end):
            if self._open[0] != index:
                self._open = index, content_of(self._which[index], self._arrays)
            found.append(self._open[1][first:last])
        return found

    def write(self, begin: int, some: memoryview) -> None:
        at = 0
        for index, (first, last) in self.layout.segments(begin, begin + len(some)):
            room = self._room(index)
            room[first:last] = some[at : at + last - first]
            at += last - first
            self._lacking[index] -= last - first
            if not self._lacking[index] and self._arrays.memory(self._which[index]) is None:
                self._arrays.fill(self._which[index], self._rooms.pop(index))

    def _room(self, index: int) -> memoryview:
        if index not in self._rooms:
            own = self._arrays.memory(self._which[index])
            self._lacking[index] = self._arrays.size_bytes(self._which[index])
            self._rooms[index] = memoryview(bytearray(self._lacking[index])) if own is None else own
        return self._rooms[index]
