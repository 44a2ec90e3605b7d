"""The calls that every framework makes, as values that know no framework: what is called, with which numbers.

The numbers are made of bits, by integer arithmetic alone, so they are the same with every version of numpy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from meanings import DTYPES, FLOATS

RANKS = 3  # not a power of two, and a third is rounded
_EVERYBODY = tuple(range(RANKS))
_MIXER = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64
_FORMATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}  # exponent, mantissa

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Call:
    operation: str
    dtype: str
    shapes: tuple[Shape, ...]  # of the tensors, more than one for a grouped operation; see `shape_of`
    op: str = "Sum"
    prescale: float = 1.0
    postscale: float = 1.0
    members: tuple[int, ...] = _EVERYBODY
    root: int = 0
    compression: str = ""
    kind: str = "usual"  # of numbers: "tiny" ones are subnormal, "any" are all bits that there are
    number: int = 0  # its place in the list

    @property
    def reduces(self) -> bool:
        return "reduce" in self.operation

    @property
    def is_scaled(self) -> bool:
        return (self.prescale, self.postscale) != (1, 1)

    def shape_of(self, tensor: int, rank: int) -> Shape:
        """This rank's tensor: the first dimension differs between ranks where it may."""
        first, *others = self.shapes[tensor] or (0,)
        if "allgather" in self.operation:
            return first * (2, 0, 1)[rank], *others
        if self.operation == "alltoall":
            return sum(self.splits(rank)), *others
        return self.shapes[tensor]

    def splits(self, rank: int) -> list[int]:
        """Of an alltoall: how many rows the rank sends to each member."""
        return [self.shapes[0][0] * ((rank + 2 * to + 1) % 3) for to in self.members]

    def data(self, tensor: int, rank: int) -> np.ndarray:
        """The rank's numbers."""
        shape = self.shape_of(tensor, rank)
        words = mixed((self.number * 16 + tensor) * RANKS + rank, int(np.prod(shape, dtype=np.int64)))
        return numbers(words, self.dtype, self.kind).reshape(shape)

    def __str__(self) -> str:
        if self.reduces:
            how = f" {self.op} x {self.prescale:g} x {self.postscale:g} {self.compression}"
        else:
            how = f" from {self.root}" if self.operation == "broadcast" else ""
        return f"{self.operation}{how} of {self.kind} {self.dtype} {self.shapes} among {self.members}"


def mixed(seed: int, count: int) -> np.ndarray:
    """`count` words of 64 bits that look random: SplitMix64 of seed and place."""
    words = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)
    words *= np.uint64(_MIXER[0])
    for shift, factor in ((30, _MIXER[1]), (27, _MIXER[2])):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    return words ^ words >> np.uint64(31)


def numbers(words: np.ndarray, dtype: str, kind: str = "usual") -> np.ndarray:
    """One number of each word. Usual floats lie between 1/64 and 64, so that the order of additions shows."""
    size = DTYPES[dtype].itemsize
    if dtype == "bool":
        return (words & np.uint64(1)).astype(bool)
    unsigned = np.dtype(f"u{size}")
    if dtype not in FLOATS or kind == "any":
        return words.astype(unsigned).view(DTYPES[dtype])
    exponent_bits, mantissa_bits = _FORMATS[dtype]
    mantissa = words & np.uint64((1 << mantissa_bits) - 1)
    sign = words >> np.uint64(63) << np.uint64(exponent_bits + mantissa_bits)
    bias = (1 << exponent_bits - 1) - 1
    exponent = words >> np.uint64(53) & np.uint64(1) if kind == "tiny" else _near(words, bias)
    return (sign | exponent << np.uint64(mantissa_bits) | mantissa).astype(unsigned).view(DTYPES[dtype])


def _near(words: np.ndarray, bias: int) -> np.ndarray:
    return (words >> np.uint64(53)) % np.uint64(12) + np.uint64(bias - 6)


@cache
def calls(dtype: str) -> list[Call]:
    """All calls with this element type."""
    lists = [_reductions(dtype), _movements(dtype)]
    if dtype in FLOATS:
        lists += [_of_floats(dtype)]
    if dtype in ("float32", "float16", "int32"):
        lists += [_large(dtype)]
    return [replace(call, number=number) for number, call in enumerate(itertools.chain(*lists))]


def _ops(dtype: str) -> list[str]:
    more = [] if dtype == "bool" else ["Average"]
    return ["Sum", "Min", "Max", "Product", *more, *(["Adasum"] if dtype in FLOATS else [])]


def _reductions(dtype: str) -> Iterator[Call]:
    group = ((37,), (), (0, 2), (5, 7))
    for op in _ops(dtype):
        for shape in ((), (0,), (1,), (37,), (3, 1031)):
            yield Call("allreduce", dtype, (shape,), op)
        yield Call("allreduce", dtype, ((41,),), op, members=(0, 2))
        yield Call("allreduce", dtype, ((41,),), op, members=(1,))
        if op != "Adasum":
            yield Call("grouped_allreduce", dtype, group, op)
            for shape in ((7, 3), (2, 5), (0, 2), (3,)):
                yield Call("reducescatter", dtype, (shape,), op)
            yield Call("reducescatter", dtype, ((7, 3),), op, members=(0, 2))
            yield Call("grouped_reducescatter", dtype, ((4, 2), (1,)), op)
    if dtype != "bool":
        for op, prescale, postscale in (("Sum", 0.1, 3.0), ("Average", 0.3, 1.0), ("Sum", 1.0, 1 / 3)):
            yield Call("allreduce", dtype, ((1031,),), op, prescale, postscale)
            yield Call("reducescatter", dtype, ((10, 3),), op, prescale, postscale)


def _movements(dtype: str) -> Iterator[Call]:
    for members in (_EVERYBODY, (0, 2)):
        for shape in ((0,), (3,), (2, 5), (64, 33)):
            yield Call("allgather", dtype, (shape,), members=members, kind="any")
            yield Call("alltoall", dtype, (shape,), members=members, kind="any")
        yield Call("grouped_allgather", dtype, ((3, 2), (1,)), members=members, kind="any")
        for shape in ((), (0,), (37,), (64, 33)):
            yield Call("broadcast", dtype, (shape,), members=members, root=members[-1], kind="any")


def _of_floats(dtype: str) -> Iterator[Call]:
    for op in ("Sum", "Average", "Min", "Max", "Product"):
        yield Call("allreduce", dtype, ((501,),), op, kind="tiny")
    yield Call("reducescatter", dtype, ((50, 3),), "Average", kind="tiny")
    if dtype in ("float32", "float64"):
        for compression in ("fp16", "bf16"):
            yield Call("allreduce", dtype, ((60_001,),), "Average", compression=compression)
            yield Call("grouped_allreduce", dtype, ((100, 3), (7,)), "Sum", 0.25, compression=compression)
            yield Call("reducescatter", dtype, ((100, 3),), "Average", compression=compression)


def _large(dtype: str) -> Iterator[Call]:
    """Beyond the rounds and chunks in which data travel, and no multiple of them."""
    for op in ("Sum", "Average", "Max"):
        yield Call("allreduce", dtype, ((700_001,),), op)
    yield Call("reducescatter", dtype, ((1001, 701),), "Average")
    for operation in ("allgather", "broadcast", "alltoall"):
        yield Call(operation, dtype, ((70_001,),) if operation == "alltoall" else ((500_001,),), kind="any")
