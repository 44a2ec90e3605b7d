"""Conformance: alltoall, reducescatter, Adasum, sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from farandole.testing._face import Face, needs


def alltoall_gives_every_rank_its_part(face: Face) -> None:
    for dtype in face.subject.dtypes:
        values = [[_plain(sender + 2 * to, dtype) for to in face.ranks for _ in range(4)] for sender in face.ranks]
        result = face.module.alltoall(face.make(values[face.rank], (2 * face.size, 2), dtype))
        mine = slice(4 * face.rank, 4 * face.rank + 4)
        face.equal(result, [v for sender in face.ranks for v in values[sender][mine]], (2 * face.size, 2), why=dtype)
    face.equal(face.module.alltoall(face.make([], (0, 3))), [], (0, 3))


def alltoall_takes_splits(face: Face) -> None:
    rules: list[Callable[[int, int], int]] = [
        lambda sender, to: (sender + 2 * to) % 3,
        lambda sender, to: sender,
        lambda sender, to: 0,
        lambda sender, to: 500 if to == 0 else 1,
    ]
    for rule in rules:
        splits = [rule(face.rank, to) for to in face.ranks]
        sent = [100 * face.rank + to for to, count in enumerate(splits) for _ in range(3 * count)]
        received = [rule(sender, face.rank) for sender in face.ranks]
        expected = [100 * sender + face.rank for sender, count in enumerate(received) for _ in range(3 * count)]
        kinds = [splits, tuple(splits), face.make(splits, dtype="int32"), face.make(splits, dtype="int64")]
        for kind in kinds:
            result, counts = face.module.alltoall(face.make(sent, (sum(splits), 3)), kind)
            face.equal(result, expected, (sum(received), 3))
            face.equal(counts, received)
            wanted = kind if hasattr(kind, "dtype") else kinds[-1]
            assert str(counts.dtype) == str(wanted.dtype)


@needs("alltoall_async")
def alltoall_async_matches_by_name(face: Face) -> None:
    order = [0, 1, 2] if face.rank % 2 else [2, 1, 0]
    handles = {}
    for k in order:
        tensor = face.make([10 * k + face.rank] * face.size)
        handles[k] = face.module.alltoall_async(tensor, [1] * face.size if k else None, name=f"exchange.{k}")
    for k, handle in handles.items():
        result = face.module.synchronize(handle)
        face.equal(result[0] if k else result, [10 * k + sender for sender in face.ranks])
        assert face.module.synchronize(handle) is result


def alltoall_says_what_is_wrong_with_splits(face: Face) -> None:
    tensor = face.make([1] * 2 * face.size)
    ones = [1] * face.size
    for splits, words in (
        ([*ones, 1], "splits"),
        ([], "splits"),
        ([*ones[1:], face.size + 2], "splits"),
        (ones, "rows without a receiver"),
        ([*ones[1:], -1], "negative"),
        ([1.5] * face.size, "integers"),
        ([ones], "integers"),
        (7, "integers"),
    ):
        face.misused(partial(face.module.alltoall, tensor, splits), words)
    if face.size > 1:
        face.misused(lambda: face.module.alltoall(face.make([1] * (face.size + 1))), "multiple of the number of ranks")
    face.misused(lambda: face.module.alltoall(face.make([1], ())), "dimension")
    face.equal(face.module.alltoall(face.make([face.rank] * face.size)), list(face.ranks), why="afterwards")


def reducescatter_reduces_every_dtype(face: Face) -> None:
    rows = 2 * face.size + 1
    inputs = [[rank + 1 + index % 2 for index in range(rows * 3)] for rank in face.ranks]
    mine = _rows(rows, face.size, face.rank)
    columns = list(zip(*inputs, strict=True))[3 * mine.start : 3 * mine.stop]
    for dtype in face.numbers:
        tensor = face.make(inputs[face.rank], (rows, 3), dtype)
        face.reduces(face.module.reducescatter, tensor, columns, (len(mine), 3), dtype)


def reducescatter_takes_every_number_of_rows(face: Face) -> None:
    factor = sum(rank + 1 for rank in face.ranks)
    for rows in (0, 1, face.size - 1, face.size, face.size + 1, 17, 5003):
        for row in ((), (2,), (0,)):
            width = math.prod(row)
            values = [(face.rank + 1) * (i % 61) for i in range(rows * width)]
            result = face.module.reducescatter(face.make(values, (rows, *row)), op=face.module.Sum)
            mine = _rows(rows, face.size, face.rank)
            wanted = [factor * (i % 61) for i in range(mine.start * width, mine.stop * width)]
            face.equal(result, wanted, (len(mine), *row), why=(rows, row))


def reducescatter_averages_by_default_and_scales(face: Face) -> None:
    values = [face.size * (face.rank + i) for i in range(face.size)]
    mine = sum(rank + face.rank for rank in face.ranks)
    face.equal(face.module.reducescatter(face.make(values)), [mine])
    result = face.module.reducescatter(face.make(values), op=face.module.Sum, prescale_factor=0.5, postscale_factor=4.0)
    face.equal(result, [2 * face.size * mine])
    result = face.module.reducescatter(face.make(values), compression=face.module.Compression.fp16)
    face.equal(result, [mine])
    face.misused(lambda: face.module.reducescatter(face.make(values), op=face.module.Adasum), "Adasum", "allreduce")
    face.misused(lambda: face.module.reducescatter(face.make([1], ())), "dimension")


@needs("reducescatter_async", "grouped_reducescatter", "grouped_reducescatter_async")
def reducescatter_comes_grouped_and_asynchronous(face: Face) -> None:
    def group() -> list[Any]:
        return [face.make([face.rank + k] * face.size * k, (face.size, k)) for k in range(3)]

    for results in (
        face.module.grouped_reducescatter(group(), op=face.module.Max, name="group"),
        face.module.synchronize(face.module.grouped_reducescatter_async(group(), op=face.module.Max, name="later")),
        [
            face.module.synchronize(face.module.reducescatter_async(each, op=face.module.Max, name=f"one.{k}"))
            for k, each in enumerate(group())
        ],
    ):
        for k, result in enumerate(results):
            face.equal(result, [face.size - 1 + k] * k, (1, k), why=k)
    face.misused(lambda: face.module.grouped_reducescatter([]), "at least one")


def rows_of_strided_memory(face: Face) -> None:
    if face.subject.strided is None:
        return
    values = [float(face.rank + i) for i in range(face.size)]
    result = face.module.alltoall(face.subject.strided(values, "float32"))
    face.equal(result, [sender + face.rank for sender in face.ranks])
    result = face.module.reducescatter(face.subject.strided(values, "float32"), op=face.module.Sum)
    face.equal(result, [sum(sender + face.rank for sender in face.ranks)])


def adasum_is_that_of_the_paper(face: Face) -> None:
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
        if dtype not in face.subject.dtypes:
            continue
        for count in (1, 3, 1000, 20011):
            vectors = [[float((i * (rank + 2)) % 7 - 2 + rank) for i in range(count)] for rank in face.ranks]
            result = face.module.allreduce(face.make(vectors[face.rank], dtype=dtype), op=face.module.Adasum)
            _close(face.subject.values(result), _adasum(vectors), tolerance, (dtype, count))


def adasum_adds_what_is_orthogonal_and_averages_what_is_parallel(face: Face) -> None:
    apart = [0.0] * face.size
    apart[face.rank] = 3.0
    face.equal(face.module.allreduce(face.make(apart), op=face.module.Adasum), [3.0] * face.size)
    face.equal(face.module.allreduce(face.make([2.0, -4.0]), op=face.module.Adasum), [2.0, -4.0])
    face.equal(face.module.allreduce(face.make([0.0, 0.0]), op=face.module.Adasum), [0.0, 0.0])


@needs("grouped_allreduce_", "allreduce_")
def adasum_works_on_each_tensor_of_a_group_and_in_place(face: Face) -> None:
    vectors = [[[float((rank + 1) * (i + k) % 5) for i in range(4)] for rank in face.ranks] for k in range(2)]
    tensors = [face.make(each[face.rank], dtype="float64") for each in vectors]
    for tensor, each in zip(face.module.grouped_allreduce_(tensors, op=face.module.Adasum), vectors, strict=True):
        _close(face.subject.values(tensor), _adasum(each), 1e-12, "group")
    tensor = face.make(vectors[0][face.rank], dtype="float64")
    assert face.module.allreduce_(tensor, op=face.module.Adasum) is tensor
    _close(face.subject.values(tensor), _adasum(vectors[0]), 1e-12, "in place")
    face.misused(lambda: face.module.allreduce(face.make([1], dtype="int32"), op=face.module.Adasum), "int32")


@needs("sparse_allreduce")
def sparse_tensors_are_gathered(face: Face) -> None:
    indices = face.make([face.rank, 7][: face.rank], dtype="int64") if face.rank < 3 else face.make([1], dtype="int64")
    (rows,) = face.subject.shape(indices)
    counts = [min(rank, 2) if rank < 3 else 1 for rank in face.ranks]
    assert rows == counts[face.rank]
    values = face.make([face.size * (face.rank + 1)] * rows * 2, (rows, 2))
    where = [v for rank in face.ranks for v in ([rank, 7][:rank] if rank < 3 else [1])]
    total = [face.size * (rank + 1) for rank in face.ranks for _ in range(2 * counts[rank])]
    for op, factor in (("Sum", 1), ("Average", face.size)):
        got = face.module.sparse_allreduce((indices, values), op=getattr(face.module, op), name="sparse")
        face.equal(got[0], where)
        face.equal(got[1], [v / factor for v in total], (len(where), 2))
    handle = face.module.sparse_allreduce_async((indices, values))
    face.equal(face.module.synchronize(handle)[1], [v / face.size for v in total], (len(where), 2))
    face.misused(lambda: face.module.sparse_allreduce((indices, values), op=face.module.Max), "Sum or Average")
    face.misused(lambda: face.module.sparse_allreduce((face.make([1] * 9), values)), "(9,)")
    integers = face.make([1], dtype="int32")
    face.misused(lambda: face.module.sparse_allreduce((integers, integers)), "int32")


def _adasum(vectors: list[list[float]]) -> list[float]:
    """Adasum (Maleki et al., 2021) of all vectors, in order R.

    It is that of the first p and the rest, p the largest power of two below their number.
    """
    if len(vectors) == 1:
        return vectors[0]
    p = 1 << (len(vectors) - 1).bit_length() - 1
    a, b = _adasum(vectors[:p]), _adasum(vectors[p:])
    common, of_a, of_b = (math.fsum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, b), (a, a), (b, b)))
    left = 1.0 - common / (2.0 * of_a) if of_a else 1.0
    right = 1.0 - common / (2.0 * of_b) if of_b else 1.0
    return [left * x + right * y for x, y in zip(a, b, strict=True)]


def _close(got: list[float], wanted: list[float], tolerance: float, why: object) -> None:
    scale = max(map(abs, wanted), default=0.0)
    wrong = [
        (i, g, w) for i, (g, w) in enumerate(zip(got, wanted, strict=True)) if abs(g - w) > tolerance * (abs(w) + scale)
    ]
    assert not wrong, f"{why}: {len(wrong)} elements differ, first (index, is, should be) {wrong[0]}"


def _rows(rows: int, size: int, rank: int) -> range:
    """Those of one rank: as many for each, the first ones one more."""
    starts = [rows // size * each + min(each, rows % size) for each in (rank, rank + 1)]
    return range(*starts)


def _plain(value: int, dtype: str) -> int:
    return value % 2 if dtype == "bool" else value
