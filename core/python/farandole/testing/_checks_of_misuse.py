"""Conformance: what goes wrong is said clearly, by the right exception, and the job goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from farandole import NotInitializedError
from farandole.testing._face import Face, needs


def shapes_that_differ_are_named(face: Face) -> None:
    if face.size == 1:
        return
    last = face.size - 1
    tensor = face.make([1.0] * (3 if face.rank == last else 2))
    face.mismatched(
        lambda: face.module.allreduce(tensor, name="shapes"), "shapes", "rank 0", f"rank {last}", "(2,)", "(3,)"
    )
    _goes_on(face)


def dtypes_that_differ_are_named(face: Face) -> None:
    if face.size == 1:
        return
    last = face.size - 1
    tensor = face.make([1, 2], dtype="int32" if face.rank == last else "float32")
    face.mismatched(
        lambda: face.module.allreduce(tensor, name="dtypes", op=face.module.Sum),
        "dtypes",
        "rank 0",
        f"rank {last}",
        "float32",
        "int32",
    )
    _goes_on(face)


def reductions_that_differ_are_named(face: Face) -> None:
    if face.size == 1:
        return
    op = face.module.Min if face.rank == 0 else face.module.Sum
    face.mismatched(
        lambda: face.module.allreduce(face.make([1.0]), name="ops", op=op), "ops", "rank 0", "rank 1", "min", "sum"
    )
    _goes_on(face)


def operations_that_differ_are_named(face: Face) -> None:
    if face.size == 1:
        return

    def call() -> None:
        if face.rank == 0:
            face.module.allreduce(face.make([1.0]))
        else:
            face.module.broadcast(face.make([1.0]), 0)

    face.mismatched(call, "rank 0", "rank 1", "allreduce", "broadcast")
    _goes_on(face)


def operations_that_differ_under_one_name_are_named(face: Face) -> None:
    if face.size == 1:
        return

    def call() -> None:
        if face.rank == 0:
            face.module.allreduce(face.make([1.0]), name="both")
        else:
            face.module.broadcast(face.make([1.0]), 0, name="both")

    face.mismatched(call, "'both'", "rank 0", "rank 1", "allreduce", "broadcast")
    _goes_on(face)


def roots_that_differ_are_named(face: Face) -> None:
    if face.size == 1:
        return
    root = 0 if face.rank == 0 else 1
    face.mismatched(lambda: face.module.broadcast(face.make([1.0]), root, name="roots"), "roots", "rank 0", "rank 1")
    _goes_on(face)


def rows_that_differ_in_allgather_are_named(face: Face) -> None:
    if face.size == 1:
        return
    columns = 3 if face.rank == 0 else 2
    tensor = face.make([1.0] * 2 * columns, (2, columns))
    face.mismatched(lambda: face.module.allgather(tensor, name="rows"), "rows", "rank 0", "rank 1")
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


CHECKS = (
    shapes_that_differ_are_named,
    dtypes_that_differ_are_named,
    reductions_that_differ_are_named,
    operations_that_differ_are_named,
    operations_that_differ_under_one_name_are_named,
    roots_that_differ_are_named,
    rows_that_differ_in_allgather_are_named,
    a_name_twice_in_flight_is_refused,
    what_one_rank_cannot_call_fails_on_all_and_shifts_nothing,
    a_root_out_of_range_is_refused,
    a_scalar_cannot_be_gathered,
    an_unsupported_dtype_is_refused,
    an_unknown_reduction_is_refused,
    use_before_init_is_refused,
)
