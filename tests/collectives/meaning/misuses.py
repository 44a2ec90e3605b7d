"""Misuse that one rank sees alone, as data: the call, and what it must be told; and what looks odd and works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


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
    "clongdouble",
    "longdouble",
    "object",
    "datetime64[s]",
    "S4",
    "U2",
    ">f4",
)
_ONES = np.ones(4, np.float32)
_NOT_TENSORS = ([1.0, 2.0], None, "text", 3, {"a": 1})

MISUSES: list[Misuse] = [
    *(Misuse(f"allreduce {kind}", _reduce(np.empty(3, kind)), (ValueError,), ("dtype",)) for kind in _UNSUPPORTED),
    *(
        Misuse(f"{name} {kind}", lambda fnp, name=name, kind=kind: getattr(fnp, name)(np.empty(3, kind)), (ValueError,))
        for name in ("allgather", "allgather_async", "allreduce_", "allreduce_async_")
        for kind in ("clongdouble", "timedelta64[s]")
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
        lambda fnp: fnp.grouped_allgather([_ONES, np.ones(2, np.clongdouble)]),
        (ValueError,),
        ("complex256",),
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

# ---- parts of different sizes


def _exchange(splits: Callable[[int], Any], rows: Callable[[int], int] = lambda n: n) -> Callable[[Any], object]:
    """Hand round `rows` rows in such splits; both are given the number of ranks."""
    return lambda fnp: fnp.alltoall(np.ones((rows(fnp.size()), 2)), splits(fnp.size()))


_SPLITS: list[tuple[str, Callable[[int], Any], tuple[str, ...]]] = [
    ("too few", lambda n: [1] * (n - 1), ("splits", "ranks")),
    ("none", lambda n: [], ("splits", "ranks")),
    ("one too many", lambda n: [1] * n + [0], ("splits", "ranks")),
    ("more than there are rows", lambda n: [1] * (n - 1) + [2], ("add up to more",)),
    ("far more than there are rows", lambda n: [2**40] + [0] * (n - 1), ("add up to more",)),
    ("a sum that wraps", lambda n: [2**63 - 1, 2**63 - 1] + [2] * (n - 2), ("add up to more",)),
    ("less than there are rows", lambda n: [0] * n, ("without a receiver",)),
    ("negative", lambda n: [-1, 1] + [1] * (n - 2), ("negative",)),
    ("most negative", lambda n: [-(2**63)] + [1] * (n - 1), ("negative",)),
    ("fractions", lambda n: [1.0] * n, ("integers",)),
    ("an array of fractions", np.ones, ("integers",)),
    ("text", lambda n: ["1"] * n, ("integers",)),
    ("None among them", lambda n: [None] * n, ("integers",)),
    ("nested", lambda n: [[1] * n], ("integers",)),
    ("an array of two dimensions", lambda n: np.ones((n, 1), np.int64), ("integers",)),
    ("a number", lambda n: n, ("integers",)),
    ("an array without dimensions", np.int64, ("integers",)),
]

MISUSES += [
    *(Misuse(f"splits: {label}", _exchange(splits), (ValueError,), words) for label, splits, words in _SPLITS),
    Misuse("splits beyond 64 bits", _exchange(lambda n: [2**64] + [0] * (n - 1)), (ValueError, TypeError)),
    Misuse("splits of nothing", _exchange(lambda n: [1] * n, lambda n: 0), (ValueError,), ("add up to more",)),
    Misuse("rows that do not divide", lambda fnp: fnp.alltoall(np.ones(fnp.size() + 1)), (ValueError,), ("multiple",)),
    *(
        Misuse(f"{name} of {label}", lambda fnp, name=name, x=x: getattr(fnp, name)(x), kinds, words)
        for name in ("alltoall", "alltoall_async", "reducescatter", "reducescatter_async")
        for label, x, kinds, words in (
            ("a scalar", np.ones(()), (ValueError,), ("dimension",)),
            ("clongdouble", np.ones(6, "clongdouble"), (ValueError,), ("dtype",)),
            ("a list", [1.0] * 6, (TypeError,), ("list",)),
        )
    ),
    Misuse("Adasum scattered", lambda fnp: fnp.reducescatter(_ONES, op=fnp.Adasum), (ValueError,), ("Adasum",)),
    Misuse("Adasum of integers", lambda fnp: fnp.allreduce(np.ones(3, "i4"), op=fnp.Adasum), (ValueError,), ("int32",)),
    Misuse("average of bool scattered", lambda fnp: fnp.reducescatter(np.ones(6, bool)), (ValueError,), ("bool",)),
    Misuse("nothing scattered", lambda fnp: fnp.grouped_reducescatter([]), (ValueError,), ("at least one",)),
    Misuse("sparse: indices too many", lambda fnp: fnp.sparse_allreduce((np.ones(9), _ONES)), (ValueError,), ("(9,)",)),
    Misuse("sparse: Max", lambda fnp: fnp.sparse_allreduce((_ONES, _ONES), op=fnp.Max), (ValueError,), ("Sum",)),
]

# ---- process sets

_NO_RANKS: tuple[Any, ...] = ([], [-1], [0, -5], ["0"], [0.5], [None], [[0]], 3, None, "world", {"a": 1})
_UNKNOWN = ("allreduce", "allgather", "alltoall", "reducescatter", "allreduce_async", "alltoall_async")


def _in_set(name: str, process_set: Callable[[Any], Any]) -> Callable[[Any], object]:
    return lambda fnp: getattr(fnp, name)(np.ones(fnp.size()), process_set=process_set(fnp))


MISUSES += [
    *(
        Misuse(f"{name} {x!r}", lambda fnp, name=name, x=x: getattr(fnp, name)(x), (ValueError,), ("process set",))
        for name in ("ProcessSet", "add_process_set")
        for x in _NO_RANKS
    ),
    Misuse("set beyond", lambda fnp: fnp.add_process_set([0, fnp.size()]), (ValueError,), ("the ranks 0 to",)),
    Misuse("set far beyond", lambda fnp: fnp.add_process_set([0, 2**40]), (ValueError,), (str(2**40),)),
    *(
        Misuse(f"remove {x!r}", lambda fnp, x=x: fnp.remove_process_set(x), (ValueError,), ("ProcessSet", repr(x)))
        for x in (0, None, [0])
    ),
    *(
        Misuse(f"included in {x}", lambda fnp, x=x: fnp.process_set_included(x), (ValueError,), (str(x),))
        for x in (1, 99, -1)
    ),
    *(
        Misuse(f"{name} in a set {which}", _in_set(name, process_set), (ValueError,), words)
        for name in _UNKNOWN
        for which, process_set, words in (
            ("nobody added", lambda fnp: fnp.ProcessSet([0]), ("add_process_set",)),
            ("beyond", lambda fnp: fnp.ProcessSet([fnp.size()]), ("this world",)),
        )
    ),
    *(Misuse(f"{name} in set 0", _in_set(name, lambda fnp: 0), (ValueError,), ("process_set=0",)) for name in _UNKNOWN),
]

# Calls that look odd and work: (label, call given farandole.numpy and the size, right result).
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
