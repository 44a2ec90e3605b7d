"""Conformance: what goes wrong is said clearly, by the right exception, and the job goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from farandole import NotInitializedError
from farandole.testing._face import Face, needs


def calls_that_differ_are_named(face: Face) -> None:
    if face.size == 1:
        return
    module, one, last = face.module, face.make([1.0]), face.size - 1
    total, gather = partial(module.allreduce, op=module.Sum), partial(module.allgather, name="rows")
    both = partial(module.allreduce, one, name="both"), partial(module.broadcast, one, 0, name="both")
    roots = [partial(module.broadcast, one, root, name="roots") for root in (1, 0)]
    columns = [partial(gather, face.make([1.0] * 2 * count, (2, count))) for count in (2, 3)]
    shapes = [partial(total, face.make([1.0] * count), name="shapes") for count in (2, 3)]
    dtypes = [partial(total, face.make([1, 2], dtype=dtype), name="dtypes") for dtype in ("float32", "int32")]
    ops = [partial(module.allreduce, one, name="ops", op=op) for op in (module.Sum, module.Min)]
    unnamed = partial(module.broadcast, one, 0), partial(module.allreduce, one)
    cases: tuple[tuple[int, Sequence[Callable[[], object]], tuple[str, ...]], ...] = (
        (last, shapes, ("shapes", "(2,)", "(3,)")),  # the rank that differs, the call of all others, its own
        (last, dtypes, ("dtypes", "float32", "int32")),
        (0, ops, ("ops", "min", "sum")),
        (0, unnamed, ("allreduce", "broadcast")),
        (0, both[::-1], ("'both'", "allreduce", "broadcast")),
        (0, roots, ("roots",)),
        (0, columns, ("rows",)),
    )
    for odd, (usual, other), words in cases:
        face.mismatched(other if face.rank == odd else usual, "rank 0", f"rank {odd or 1}", *words)
        _goes_on(face)


@needs("allreduce_async")
def a_name_twice_in_flight_is_refused(face: Face) -> None:
    if face.size == 1:
        return
    if face.rank == 0:
        handle = face.module.allreduce_async(face.make([1.0]), name="twice", op=face.module.Sum)
        face.misused(lambda: face.module.allreduce_async(face.make([1.0]), name="twice"), "twice")
    face.module.broadcast_object(None, 0)  # the others start only now, so rank 0's first cannot have been complete
    if face.rank != 0:
        handle = face.module.allreduce_async(face.make([1.0]), name="twice", op=face.module.Sum)
    face.equal(face.module.synchronize(handle), [face.size])


def what_one_rank_cannot_call_fails_on_all_and_shifts_nothing(face: Face) -> None:
    if face.size == 1:
        return
    module, last = face.module, face.size - 1
    cases: tuple[tuple[Callable[[Any], object], Callable[[Any], object]], ...] = (  # right, wrong
        (partial(module.allreduce, op=module.Sum), partial(module.allreduce, op="no reduction")),
        (partial(module.broadcast, root_rank=0), partial(module.broadcast, root_rank=99)),
        (module.allgather, lambda _: module.allgather(object())),
        (module.allgather, lambda _: module.allgather(face.make([1.0], ()))),
        (module.allgather_object, lambda _: module.allgather_object(threading.Lock())),
    )
    for number, (call, wrong) in enumerate(cases):
        tensor = face.make([1.0] * (number + 2))  # unnamed calls: the next one would else meet this one
        if face.rank == last:
            face.raises(Exception, partial(wrong, tensor))
        else:
            face.mismatched(partial(call, tensor), f"rank {last} ", "could not make its call")
        _goes_on(face)


def a_root_out_of_range_is_refused(face: Face) -> None:
    for root in (-1, face.size, 99):
        face.misused(partial(face.module.broadcast, face.make([1.0]), root), root)
    _goes_on(face)


def a_scalar_cannot_be_gathered(face: Face) -> None:
    face.misused(lambda: face.module.allgather(face.make([1.0], ())), "dimension")
    _goes_on(face)


def an_unsupported_dtype_is_refused(face: Face) -> None:
    if face.subject.unsupported is not None:
        face.misused(lambda: face.module.allreduce(face.subject.unsupported()))  # type: ignore[misc]
    _goes_on(face)


def an_unknown_reduction_is_refused(face: Face) -> None:
    face.misused(lambda: face.module.allreduce(face.make([1.0]), op=77), 77)
    _goes_on(face)


def use_before_init_is_refused(face: Face) -> None:
    module = face.module
    module.barrier()
    module.shutdown()
    assert not module.is_initialized()
    for call in (
        lambda: module.allreduce(face.make([1.0])),
        lambda: module.allgather(face.make([1.0])),
        lambda: module.broadcast(face.make([1.0]), 0),
        lambda: module.broadcast_object(1, 0),
        module.barrier,
        module.rank,
        module.size,
        module.local_rank,
    ):
        face.raises(NotInitializedError, call, "init()")
    module.init()
    module.init()
    _goes_on(face)


def _goes_on(face: Face) -> None:
    face.equal(face.module.allreduce(face.make([1.0] * 9), op=face.module.Sum), [face.size] * 9, why="afterwards")
