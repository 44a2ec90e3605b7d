"""Conformance: allgather, broadcast, barrier, objects."""

from __future__ import annotations

import time
from typing import Any

from farandole.testing._face import Face, needs


def allgather_joins_along_the_first_dimension(face: Face) -> None:
    for dtype in face.subject.dtypes:
        values: list[list[Any]] = [
            [(rank + i) % 2 if dtype == "bool" else rank + i for i in range(6)] for rank in face.ranks
        ]
        result = face.module.allgather(face.make(values[face.rank], (3, 2), dtype))
        face.equal(result, [v for rank in face.ranks for v in values[rank]], (3 * face.size, 2), why=dtype)


def allgather_takes_different_first_dimensions(face: Face) -> None:
    for rows_of in (lambda rank: rank, lambda rank: (rank * 3 + 1) % 4, lambda rank: 0, lambda rank: 1000 * (rank % 2)):
        tensor = face.make([face.rank] * (2 * rows_of(face.rank)), (rows_of(face.rank), 2))
        expected = [rank for rank in face.ranks for _ in range(2 * rows_of(rank))]
        face.equal(face.module.allgather(tensor), expected, (len(expected) // 2, 2))


def allgather_results_outlive_the_next_one(face: Face) -> None:
    results = [face.module.allgather(face.make([face.rank + k])) for k in range(8)]
    for k, result in enumerate(results):
        face.equal(result, [rank + k for rank in face.ranks])


@needs("allgather_async")
def allgather_async_matches_by_name(face: Face) -> None:
    order = [0, 1, 2] if face.rank % 2 else [2, 0, 1]
    handles = {k: face.module.allgather_async(face.make([10 * k + face.rank]), name=f"gather.{k}") for k in order}
    for k, handle in handles.items():
        face.equal(face.module.synchronize(handle), [10 * k + rank for rank in face.ranks])


@needs("grouped_allgather")
def grouped_allgather_joins_each(face: Face) -> None:
    tensors = [face.make([face.rank] * face.rank), face.make([face.rank, 1], (1, 2))]
    first, second = face.module.grouped_allgather(tensors, name="gathered")
    face.equal(first, [rank for rank in face.ranks for _ in range(rank)])
    face.equal(second, [v for rank in face.ranks for v in (rank, 1)], (face.size, 2))


def broadcast_takes_every_root(face: Face) -> None:
    for root in face.ranks:
        for shape in ((), (0,), (5,), (2, 3)):
            count = 1
            for extent in shape:
                count *= extent
            tensor = face.make([face.rank] * count, shape)
            face.equal(face.module.broadcast(tensor, root), [root] * count, shape, why=root)
            face.equal(tensor, [face.rank] * count, shape, why="the input")


def broadcast_sends_every_dtype(face: Face) -> None:
    for dtype in face.subject.dtypes:
        tensor = face.make([face.rank == 0] * 3 if dtype == "bool" else [face.rank + 1] * 3, dtype=dtype)
        face.equal(face.module.broadcast(tensor, 0), [1] * 3, why=dtype)


@needs("broadcast_", "broadcast_async_")
def broadcast_in_place(face: Face) -> None:
    tensor = face.make([face.rank, 7])
    assert face.module.broadcast_(tensor, face.size - 1) is tensor
    face.equal(tensor, [face.size - 1, 7])
    handle = face.module.broadcast_async_(face.make([face.rank] * 50000), 0, name="big")
    face.equal(face.module.synchronize(handle), [0] * 50000)


@needs("broadcast_parameters")
def broadcast_parameters_takes_mappings_and_pairs(face: Face) -> None:
    tensors = {"b": face.make([face.rank, 1]), "a": face.make([face.rank], dtype="int64")}
    face.module.broadcast_parameters(tensors, root_rank=face.size - 1)
    face.equal(tensors["a"], [face.size - 1])
    face.equal(tensors["b"], [face.size - 1, 1])
    pairs = [("x", face.make([face.rank])), ("y", face.make([face.rank + 1]))]
    face.module.broadcast_parameters(pairs, root_rank=0)
    face.equal(pairs[1][1], [1])
    face.misused(lambda: face.module.broadcast_parameters(17, root_rank=0))
    face.misused(lambda: face.module.broadcast_parameters({"a": "text"}, root_rank=0), "a")


def objects_are_broadcast(face: Face) -> None:
    for root in face.ranks:
        mine = {"rank": face.rank, "text": "x" * (1000 * face.rank)}
        got = face.module.broadcast_object(mine if face.rank == root else None, root_rank=root)
        assert got == {"rank": root, "text": "x" * (1000 * root)}
    assert face.module.broadcast_object(face.rank, 0, name="number") == 0


def objects_are_gathered(face: Face) -> None:
    expected = [list(range(rank)) for rank in face.ranks]
    assert face.module.allgather_object(list(range(face.rank))) == expected
    assert face.module.allgather_object(list(range(face.rank)), name="lists") == expected


@needs("barrier")
def barrier_waits_for_the_last(face: Face) -> None:
    face.module.barrier()
    start = time.monotonic()
    if face.rank == face.size - 1:
        time.sleep(0.2)
    face.module.barrier()
    assert time.monotonic() - start > 0.15


def everyone_has_a_place(face: Face) -> None:
    places = face.module.allgather_object((face.module.rank(), face.module.size(), face.module.local_rank()))
    assert places == [(rank, face.size, rank) for rank in face.ranks]
    assert face.module.local_size() == face.size
    assert (face.module.cross_rank(), face.module.cross_size()) == (0, 1)
    assert face.module.is_initialized()
