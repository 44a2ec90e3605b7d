"""Conformance: allreduce in all its forms. Expected values are closed formulas of (rank, index)."""

from __future__ import annotations

import math
import random
import warnings
from functools import partial

from farandole.testing._face import Face, needs

_SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3, 0, 2), (2, 3), (7, 11, 13), (1031,), (70001,))


def allreduce_reduces_every_dtype(face: Face) -> None:
    def mine(rank: int) -> list[int]:
        return [rank + 1 + index % 2 for index in range(37)]

    columns = list(zip(*map(mine, face.ranks), strict=True))
    for dtype in face.numbers:
        face.reduces(face.module.allreduce, face.make(mine(face.rank), dtype=dtype), columns, None, dtype)


def allreduce_of_booleans_is_logical(face: Face) -> None:
    if "bool" not in face.subject.dtypes:
        return
    values = [face.rank == 0, True, False]
    for op, first in (("Sum", True), ("Max", True), ("Min", face.size == 1), ("Product", face.size == 1)):
        result = face.module.allreduce(face.make(values, dtype="bool"), op=getattr(face.module, op))
        face.equal(result, [first, True, False], why=op)
    face.misused(lambda: face.module.allreduce(face.make(values, dtype="bool"), op=face.module.Average), "bool")


def allreduce_truncates_averages_of_integers_towards_zero(face: Face) -> None:
    values = [-(face.rank + 1), face.rank + 1, 0]
    total = sum(rank + 1 for rank in face.ranks)
    for dtype in [dtype for dtype in ("int8", "int16", "int32", "int64") if dtype in face.subject.dtypes]:
        result = face.module.allreduce(face.make(values, dtype=dtype))
        face.equal(result, [int(-total / face.size), int(total / face.size), 0], why=dtype)


def averages_of_integers_do_not_wrap(face: Face) -> None:
    """The sum of all ranks' values need not fit the type, only the average does."""
    examples = {"uint8": 200, "int8": 100, "int16": 30_000, "int32": 2**31 - 1, "int64": 2**62}
    for dtype in face.integers:
        low, high = face.limits(dtype)
        same = [high, low, high // 3, low // 3, examples.get(dtype, high)]

        def mine(rank: int, low: int = low, high: int = high, same: tuple[int, ...] = tuple(same)) -> list[int]:
            return [*same, high - rank, low + rank, high if rank % 2 else low]

        sums = map(sum, zip(*map(mine, face.ranks), strict=True))
        expected = [abs(total) // face.size * (-1 if total < 0 else 1) for total in sums]
        assert expected[: len(same)] == same
        for repeats in (1, 601):
            tensor = face.make(mine(face.rank) * repeats, dtype=dtype)
            face.equal(face.module.allreduce(tensor), expected * repeats, why=dtype)
        rows = face.make(mine(face.rank) * face.size, (face.size, len(expected)), dtype)
        scattered, whole = face.module.reducescatter(rows), face.module.grouped_allreduce([tensor, rows])
        face.equal(scattered, expected, (1, len(expected)), why=dtype)
        face.equal(whole[1], expected * face.size, (face.size, len(expected)), why=dtype)


def complex_tensors_are_summed_and_averaged(face: Face) -> None:
    for dtype in [dtype for dtype in ("complex64", "complex128") if dtype in face.subject.dtypes]:
        values = [complex(face.size * (face.rank + i), -face.size * i) for i in range(5)]
        average = [complex(sum(rank + i for rank in face.ranks), -face.size * i) for i in range(5)]
        for repeats in (1, 601):
            tensor = face.make(values * repeats, dtype=dtype)
            face.equal(face.module.allreduce(tensor), average * repeats, why=dtype)
        result = face.module.reducescatter(
            face.make(values[:1] * face.size, dtype=dtype), op=face.module.Sum, prescale_factor=0.5
        )
        face.equal(result, [0.5 * face.size * average[0]], why=dtype)
        for op in ("Min", "Max", "Product", "Adasum"):
            call = partial(face.module.allreduce, tensor, op=getattr(face.module, op))
            face.misused(call, f"{op.lower()} of {dtype}", "sum and average")


def allreduce_takes_every_shape(face: Face) -> None:
    factor = sum(rank + 1 for rank in face.ranks)
    for shape in _SHAPES:
        count = math.prod(shape)
        tensor = face.make([(face.rank + 1) * (i % 101) for i in range(count)], shape)
        result = face.module.allreduce(tensor, op=face.module.Sum)
        face.equal(result, [factor * (i % 101) for i in range(count)], shape, why=shape)


def allreduce_averages_by_default(face: Face) -> None:
    values = [face.size * (face.rank + i) for i in range(5)]
    average = [sum(rank + i for rank in face.ranks) for i in range(5)]
    face.equal(face.module.allreduce(face.make(values)), average)


def allreduce_scales_before_and_after(face: Face) -> None:
    values = [2 * (face.rank + 1), 4]
    first, second = sum(2 * (rank + 1) for rank in face.ranks), 4 * face.size
    for dtype in [dtype for dtype in ("float32", "float64", "float16", "bfloat16") if dtype in face.subject.dtypes]:
        result = face.module.allreduce(
            face.make(values, dtype=dtype), op=face.module.Sum, prescale_factor=0.5, postscale_factor=4.0
        )
        face.equal(result, [2 * first, 2 * second], why=dtype)


def allreduce_scales_each_operand_before_it_is_reduced(face: Face) -> None:
    for dtype in [dtype for dtype in ("int32", "int64") if dtype in face.subject.dtypes]:
        result = face.module.allreduce(face.make([3, -5], dtype=dtype), op=face.module.Sum, prescale_factor=0.5)
        face.equal(result, [face.size, -2 * face.size], why=dtype)  # 1.5 and -2.5, truncated by each rank
    values = [face.rank + 1, -face.rank - 1]
    result = face.module.allreduce(face.make(values), op=face.module.Max, prescale_factor=-2.0)
    face.equal(result, [-2 * (face.ranks[0] + 1), 2 * (face.ranks[-1] + 1)])


def allreduce_leaves_its_input(face: Face) -> None:
    tensor = face.make([face.rank + 1, 5])
    face.module.allreduce(tensor, op=face.module.Sum)
    face.equal(tensor, [face.rank + 1, 5])


@needs("allreduce_")
def allreduce_in_place_changes_and_returns_its_input(face: Face) -> None:
    tensor = face.make([face.rank + 1, 5])
    result = face.module.allreduce_(tensor, op=face.module.Sum)
    assert result is tensor
    face.equal(tensor, [sum(rank + 1 for rank in face.ranks), 5 * face.size])


@needs("persistent_allreduce")
def a_persistent_allreduce_may_be_called_again(face: Face) -> None:
    tensor = face.make([face.rank + 1, 5])
    total = face.module.persistent_allreduce(tensor, "persistent", op=face.module.Sum)
    expected = [sum(rank + 1 for rank in face.ranks), 5 * face.size]
    assert total() is tensor
    face.equal(tensor, expected)
    assert face.module.synchronize(total.start()) is tensor
    face.equal(tensor, [face.size * each for each in expected])


def allreduce_of_strided_memory(face: Face) -> None:
    if face.subject.strided is None:
        return
    total = [sum((rank + 1) * i for rank in face.ranks) for i in range(6)]
    values = [(face.rank + 1) * float(i) for i in range(6)]
    face.equal(face.module.allreduce(face.subject.strided(values, "float32"), op=face.module.Sum), total)
    if "allreduce_" not in face.subject.absent:
        tensor = face.subject.strided(values, "float32")
        face.module.allreduce_(tensor, op=face.module.Sum)
        face.equal(tensor, total, why="in place")


def allreduce_accepts_the_legacy_average(face: Face) -> None:
    values = [face.size * 3]
    for average, expected in ((True, face.size * 3), (False, face.size * face.size * 3)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            face.equal(face.module.allreduce(face.make(values), average=average), [expected])
        ours = [each for each in caught if str(each.message).startswith("average= is deprecated")]
        assert bool(ours) == (face.module.rank() == 0)  # a framework may warn about other things
    face.misused(lambda: face.module.allreduce(face.make(values), average=True, op=face.module.Sum), "average")


@needs("grouped_allreduce")
def grouped_allreduce_reduces_all(face: Face) -> None:
    shapes = [(3,), (), (0, 2), (2, 2)]
    tensors = [face.make([face.rank + k] * math.prod(shape), shape) for k, shape in enumerate(shapes)]
    results = face.module.grouped_allreduce(tensors, op=face.module.Sum, name="group")
    for k, (shape, result) in enumerate(zip(shapes, results, strict=True)):
        face.equal(result, [sum(rank + k for rank in face.ranks)] * math.prod(shape), shape)


@needs("grouped_allreduce_", "grouped_allreduce_async_")
def grouped_allreduce_in_place(face: Face) -> None:
    tensors = [face.make([face.rank]), face.make([1, 2], dtype="int32")]
    assert all(
        a is b for a, b in zip(face.module.grouped_allreduce_(tensors, op=face.module.Sum), tensors, strict=True)
    )
    face.equal(tensors[0], [sum(face.ranks)])
    face.equal(tensors[1], [face.size, 2 * face.size])
    face.module.synchronize(face.module.grouped_allreduce_async_(tensors, op=face.module.Max, name="again"))
    face.equal(tensors[1], [face.size, 2 * face.size])


@needs("allreduce_async")
def asynchronous_order_may_differ_between_ranks(face: Face) -> None:
    order = list(range(24))
    random.Random(face.rank).shuffle(order)
    handles = {
        k: face.module.allreduce_async(face.make([face.rank + k] * (k + 1)), name=f"tensor.{k}", op=face.module.Sum)
        for k in order
    }
    for k, handle in handles.items():
        face.equal(face.module.synchronize(handle), [sum(rank + k for rank in face.ranks)] * (k + 1), why=k)


@needs("allreduce_async_")
def random_sequences_of_sizes(face: Face) -> None:
    common = random.Random(4711)
    for step in range(30):
        sizes = [common.choice([1, 7, 16, 1000, 4099, 40000]) for _ in range(common.randint(1, 6))]
        tensors = [face.make([(face.rank + 1) * (i % 50 + step) for i in range(size)]) for size in sizes]
        handles = [
            face.module.allreduce_async_(tensor, name=f"random.{k}", op=face.module.Sum)
            for k, tensor in enumerate(tensors)
        ]
        factor = sum(rank + 1 for rank in face.ranks)
        for size, handle in zip(sizes, handles, strict=True):
            expected = [factor * (i % 50 + step) for i in range(size)]
            face.equal(face.module.synchronize(handle), expected, why=(step, size))


@needs("allreduce_async", "poll")
def handles_can_be_polled_and_synchronized_again(face: Face) -> None:
    handle = face.module.allreduce_async(face.make([1.0]), op=face.module.Sum)
    first = face.module.synchronize(handle)
    assert face.module.poll(handle)
    assert face.module.synchronize(handle) is first
    face.equal(first, [face.size])
    face.raises(TypeError, lambda: face.module.synchronize(17))


@needs("Compression")
def compression_halves_wide_floats_only(face: Face) -> None:
    compressors = [face.module.Compression.none, face.module.Compression.fp16]
    if "bfloat16" in face.subject.dtypes:
        compressors.append(face.module.Compression.bf16)
    for compressor in compressors:
        for dtype in [dtype for dtype in ("float32", "float64", "float16", "int32") if dtype in face.subject.dtypes]:
            tensor = face.make([face.rank + 1, 2], dtype=dtype)
            result = face.module.allreduce(tensor, op=face.module.Sum, compression=compressor)
            face.equal(result, [sum(rank + 1 for rank in face.ranks), 2 * face.size], why=dtype)
            assert type(result) is type(tensor)
            kept, _ = compressor.compress(tensor)
            assert (kept is tensor) == (compressor is face.module.Compression.none or dtype in ("float16", "int32"))
            sent, context = compressor.compress(tensor)
            assert str(compressor.decompress(sent, context).dtype) == str(tensor.dtype)
