"""Bad input as data: what ranks call, what each of them must be told. No test functions here, and no judging."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from meanings import DTYPES


@dataclass(frozen=True)
class Call:
    """One operation on tensors of ones."""

    kind: str = "allreduce"
    dtype: str = "float32"
    shape: tuple[int, ...] = (4,)
    more: tuple[tuple[str, tuple[int, ...]], ...] = ()  # further tensors of a grouped operation
    op: str = "Sum"
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0

    def perform(self, fnp: Any, name: str | None, blocking: bool) -> None:
        """Perform it and wait for it."""
        if self.kind == "barrier":
            fnp.barrier()
            return
        specs = [(self.dtype, self.shape), *self.more]
        tensors: Any = [np.ones(shape, DTYPES[dtype]) for dtype, shape in specs]
        if not self.kind.startswith("grouped_"):
            tensors = tensors[0]
        words: dict[str, Any] = {"name": name}
        if self.kind.endswith("allreduce"):
            scales = {"prescale_factor": self.prescale, "postscale_factor": self.postscale}
            words.update(op=getattr(fnp, self.op), **scales)
        elif self.kind == "broadcast":
            words["root_rank"] = self.root
        if blocking:
            getattr(fnp, self.kind)(tensors, **words)
        else:
            fnp.synchronize(getattr(fnp, f"{self.kind}_async")(tensors, **words))


@dataclass(frozen=True)
class Difference:
    """Two calls that do not fit, and the value of each that the error must show."""

    left: Call
    right: Call
    words: tuple[str, str]

    @property
    def named(self) -> bool:
        """Whether both can have a name."""
        return "barrier" not in (self.left.kind, self.right.kind)


@dataclass(frozen=True)
class Mismatch:
    """A difference as it happens: rank `odd` makes the right call, all others the left one."""

    difference: Difference
    odd: int
    name: str | None
    blocking: bool

    def call(self, rank: int) -> Call:
        return self.difference.right if rank == self.odd else self.difference.left

    def words(self) -> list[str]:
        """What every rank's error must hold: the first two ranks that differ, with both values."""
        left, right = self.difference.words
        first, other = (right, left) if self.odd == 0 else (left, right)
        return [
            f"rank 0 has {first}",
            f"rank {self.odd or 1} has {other}",
            f"'{self.name}'" if self.name else "unnamed",
        ]


_BASE = Call()
_GATHER = Call("allgather", shape=(2, 3))
_CAST = Call("broadcast")
_GROUP = Call("grouped_allreduce", more=(("float32", (2,)), ("int32", (3,))))
_GATHERS = Call("grouped_allgather", shape=(1, 2), more=(("float32", (2, 2)),))


def _with(base: Call, field: str, pairs: list[tuple[Any, Any]], show: Callable[[Any], str] = str) -> list[Difference]:
    """Differences in one field of a call."""
    calls = [(replace(base, **{field: a}), replace(base, **{field: b}), (show(a), show(b))) for a, b in pairs]
    return [Difference(*each) for each in calls]


def _number(value: float) -> str:
    return f"{value:g}"


_DTYPE_PAIRS = [("float32", "float64"), ("float16", "bfloat16"), ("int8", "uint8"), ("int32", "float32")]
_MORE_DTYPES = [("int64", "int32"), ("bool", "uint8"), ("uint16", "int16")]
_SHAPES = [((2,), (3,)), ((2, 3), (3, 2)), ((), (1,)), ((0,), (4,)), ((4,), (4, 1)), ((70000,), (70001,))]
_ROWS = [((2, 3), (2, 4)), ((1, 2), (1, 2, 1)), ((5,), (5, 1))]

DIFFERENCES = [
    *_with(_BASE, "dtype", _DTYPE_PAIRS + _MORE_DTYPES),
    *_with(_CAST, "dtype", _DTYPE_PAIRS),
    *_with(_GATHER, "dtype", _DTYPE_PAIRS),
    *_with(_BASE, "shape", _SHAPES),
    *_with(_CAST, "shape", _SHAPES),
    *[
        replace(each, words=(str(each.left.shape[1:]), str(each.right.shape[1:])))
        for each in _with(_GATHER, "shape", _ROWS)
    ],
    *_with(_BASE, "op", [("Sum", "Average"), ("Min", "Max"), ("Sum", "Product")], str.lower),
    *_with(_CAST, "root", [(0, 1)]),
    *_with(_BASE, "prescale", [(1.0, 0.5), (2.0, -2.0)], _number),
    *_with(_BASE, "postscale", [(1.0, 0.25), (3.0, 3.5)], _number),
    *_with(_BASE, "kind", [("allreduce", "allgather"), ("allreduce", "broadcast"), ("allgather", "broadcast")]),
    *_with(_BASE, "kind", [("allreduce", "barrier"), ("barrier", "allgather")]),
    Difference(_GROUP, replace(_GROUP, more=_GROUP.more[:1]), ("3", "2")),
    Difference(_GROUP, replace(_GROUP, more=(("float32", (2,)), ("int64", (3,)))), ("int32", "int64")),
    Difference(_GROUP, replace(_GROUP, more=(("float32", (5,)), ("int32", (3,)))), ("(2,)", "(5,)")),
    Difference(_GROUP, _BASE, ("3", "1")),
    Difference(_GATHERS, replace(_GATHERS, more=()), ("2", "1")),
    Difference(_GATHERS, replace(_GATHERS, more=(("float32", (2, 5)),)), ("(2,)", "(5,)")),
    Difference(_GROUP, replace(_GATHERS, shape=(4,)), ("allreduce", "allgather")),
]


def mismatches(ranks: int) -> list[Mismatch]:
    """Each difference, named and unnamed, blocking and not; the odd rank is drawn."""
    draw = random.Random(ranks)
    found = []
    for number, (difference, named, blocking) in enumerate(
        itertools.product(DIFFERENCES, (True, False), (True, False))
    ):
        if (named and not difference.named) or (not blocking and not difference.named):
            continue
        name = f"mismatch.{number}" if named else None
        found.append(Mismatch(difference, draw.randrange(ranks), name, blocking))
    return found


# ---- misuse that one rank sees alone


@dataclass(frozen=True)
class Misuse:
    label: str
    perform: Callable[[Any], object]  # given farandole.numpy
    kinds: tuple[type[BaseException], ...]
    words: tuple[str, ...] = ()


def _reduce(array: Any, **words: Any) -> Callable[[Any], object]:
    return lambda fnp: fnp.allreduce(array, **words)


def _huge() -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.ones(1, np.uint8), (2**61,), (0,))


def _read_only() -> np.ndarray:
    array = np.ones(4, np.float32)
    array.flags.writeable = False
    return array


_UNSUPPORTED = (
    "complex64",
    "complex128",
    "uint32",
    "uint64",
    "longdouble",
    "object",
    "datetime64[s]",
    "S4",
    "U2",
    ">f4",
)
_ONES = np.ones(4, np.float32)
_NOT_TENSORS = ([1.0, 2.0], None, "text", 3, {"a": 1})

MISUSES = [
    *(Misuse(f"allreduce {kind}", _reduce(np.empty(3, kind)), (ValueError,), ("dtype",)) for kind in _UNSUPPORTED),
    *(
        Misuse(f"{name} {kind}", lambda fnp, name=name, kind=kind: getattr(fnp, name)(np.empty(3, kind)), (ValueError,))
        for name in ("allgather", "allgather_async", "allreduce_", "allreduce_async_")
        for kind in ("complex64", "uint32")
    ),
    *(Misuse(f"allreduce of {type(x).__name__}", _reduce(x), (TypeError,), (type(x).__name__,)) for x in _NOT_TENSORS),
    Misuse("masked", _reduce(np.ma.masked_array([1.0, 2.0], [0, 1])), (ValueError,), ("filled",)),
    Misuse("in place, read-only", lambda fnp: fnp.allreduce_(_read_only()), (ValueError,), ("read-only",)),
    Misuse("in place, read-only, async", lambda fnp: fnp.allreduce_async_(_read_only()), (ValueError,), ("read-only",)),
    Misuse("broadcast in place, read-only", lambda fnp: fnp.broadcast_(_read_only(), 0), (ValueError,), ("read-only",)),
    Misuse(
        "grouped in place, read-only", lambda fnp: fnp.grouped_allreduce_([_read_only()]), (ValueError,), ("read-only",)
    ),
    Misuse("in place, numpy scalar", lambda fnp: fnp.allreduce_(np.float32(1)), (TypeError,), ("float32",)),
    Misuse("too many elements", lambda fnp: fnp.allreduce(_huge()), (MemoryError, ValueError)),
    Misuse("scalar gathered", lambda fnp: fnp.allgather(np.float32(1)), (ValueError,), ("dimension",)),
    Misuse("scalar gathered, async", lambda fnp: fnp.allgather_async(np.ones(())), (ValueError,), ("dimension",)),
    *(
        Misuse(f"root {root!r}", lambda fnp, root=root: fnp.broadcast(_ONES, root), (ValueError, TypeError))
        for root in (-1, 99, 2**40, "0", None, 0.5)
    ),
    Misuse("root of async", lambda fnp: fnp.broadcast_async_(np.ones(3), 4), (ValueError,), ("4", "root")),
    Misuse("root of an object", lambda fnp: fnp.broadcast_object(1, 77), (ValueError,), ("77",)),
    *(Misuse(f"op {op!r}", _reduce(_ONES, op=op), (ValueError,), ("op", repr(op))) for op in (77, "sum", -1)),
    Misuse("op and average", lambda fnp: fnp.allreduce(_ONES, average=True, op=fnp.Sum), (ValueError,), ("average",)),
    Misuse("average of bool", _reduce(np.ones(3, bool)), (ValueError,), ("bool", "average")),
    *(
        Misuse(f"prescale {x!r}", _reduce(_ONES, prescale_factor=x), (ValueError, TypeError))
        for x in (float("nan"), float("inf"), "two", None)
    ),
    *(
        Misuse(f"postscale {x!r}", _reduce(_ONES, postscale_factor=x), (ValueError, TypeError))
        for x in (float("nan"), float("-inf"), "two", None)
    ),
    *(Misuse(f"name {x!r}", _reduce(_ONES, name=x), (TypeError, ValueError)) for x in (5, ["a"])),
    *(
        Misuse(f"process set {x!r}", _reduce(_ONES, process_set=x), (ValueError, TypeError), ("process_set",))
        for x in (5, "world", [0])
    ),
    Misuse("empty group", lambda fnp: fnp.grouped_allreduce([]), (ValueError,), ("at least one",)),
    Misuse("empty gathering", lambda fnp: fnp.grouped_allgather([]), (ValueError,), ("at least one",)),
    Misuse("no list", lambda fnp: fnp.grouped_allreduce(_ONES), (TypeError,), ("list",)),
    Misuse("None in a group", lambda fnp: fnp.grouped_allreduce([_ONES, None]), (TypeError,), ("NoneType",)),
    Misuse(
        "bad last of a group",
        lambda fnp: fnp.grouped_allgather([_ONES, np.ones(2, "c8")]),
        (ValueError,),
        ("complex64",),
    ),
    Misuse("synchronize 3", lambda fnp: fnp.synchronize(3), (TypeError,), ("handle",)),
    Misuse("poll None", lambda fnp: fnp.poll(None), (TypeError,), ("handle",)),
    Misuse("parameters 17", lambda fnp: fnp.broadcast_parameters(17), (ValueError,)),
    Misuse("parameters of text", lambda fnp: fnp.broadcast_parameters({"a": "text"}), (ValueError,), ("'a'",)),
    Misuse(
        "parameters twice", lambda fnp: fnp.broadcast_parameters([("a", _ONES), ("a", _ONES)]), (ValueError,), ("name",)
    ),
    Misuse("barrier of a set", lambda fnp: fnp.barrier(process_set=3), (ValueError, TypeError), ("process_set",)),
]

# What looks odd and works: (label, call given farandole.numpy and the size, right result).
ODD_BUT_RIGHT: list[tuple[str, Callable[[Any], Any], Callable[[int], Any]]] = [
    ("read-only input", lambda fnp: fnp.allreduce(_read_only(), op=fnp.Sum), lambda n: np.full(4, n, "float32")),
    ("strided", lambda fnp: fnp.allreduce(np.ones((6, 4))[::2, ::3], op=fnp.Sum), lambda n: np.full((3, 2), float(n))),
    ("reversed", lambda fnp: fnp.allreduce(np.arange(5.0)[::-1], op=fnp.Sum), lambda n: n * np.arange(5.0)[::-1]),
    (
        "Fortran order",
        lambda fnp: fnp.allreduce(np.asfortranarray(np.arange(6.0).reshape(2, 3)), op=fnp.Max),
        lambda n: np.arange(6.0).reshape(2, 3),
    ),
    (
        "one element for many",
        lambda fnp: fnp.allreduce(np.broadcast_to(np.float64(2), (3, 3)), op=fnp.Sum),
        lambda n: np.full((3, 3), 2.0 * n),
    ),
    ("a numpy scalar", lambda fnp: fnp.allreduce(np.float64(3), op=fnp.Sum), lambda n: np.array(3.0 * n)),
    ("a name of a million letters", lambda fnp: fnp.allreduce(_ONES, name="x" * 10**6, op=fnp.Max), lambda n: _ONES),
    ("a name of odd letters", lambda fnp: fnp.allreduce(_ONES, name="a\n\0'\N{SNOWMAN}", op=fnp.Max), lambda n: _ONES),
    ("an empty name", lambda fnp: fnp.allreduce(_ONES, name="", op=fnp.Max), lambda n: _ONES),
    ("nothing at all", lambda fnp: fnp.allreduce(np.empty((0, 3)), op=fnp.Sum), lambda n: np.empty((0, 3))),
    ("gathered nothing", lambda fnp: fnp.allgather(np.empty((0, 3))), lambda n: np.empty((0, 3))),
    (
        "unaligned",
        lambda fnp: fnp.allreduce(np.zeros(17, "u1")[1:].view("f4"), op=fnp.Sum),
        lambda n: np.zeros(4, "f4"),
    ),
    (
        "the same array twice",
        lambda fnp: fnp.grouped_allreduce([_ONES, _ONES], op=fnp.Sum)[1],
        lambda n: np.full(4, n, "float32"),
    ),
    ("64 dimensions", lambda fnp: fnp.allreduce(np.ones((1,) * 64), op=fnp.Max), lambda n: np.ones((1,) * 64)),
]
