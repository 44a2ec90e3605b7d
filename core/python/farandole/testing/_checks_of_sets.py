"""Conformance: process sets, join, and the names that every face has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import farandole
from farandole import ArgumentError, MismatchError
from farandole.plugin import Collectives
from farandole.testing._face import Face, needs


def every_name_is_offered(face: Face) -> None:
    operations = [name for name in dir(Collectives) if not name.startswith("_")]
    expected = {*farandole.__all__, *operations, "Compression"} - {"__version__"} - face.subject.absent
    assert sorted(expected - set(face.module.__all__)) == []
    assert [name for name in face.module.__all__ if not hasattr(face.module, name)] == []
    assert len(set(face.module.__all__)) == len(face.module.__all__)


@needs("add_process_set")
def sets_reduce_among_themselves(face: Face) -> None:
    with _added(face) as sets:
        for each in sets:
            if not each.included():
                continue
            total = sum(rank + 1 for rank in each.ranks)
            tensor = face.make([face.rank + 1, 2 * face.rank + 2])
            result = face.module.allreduce(tensor, op=face.module.Sum, process_set=each)
            face.equal(result, [total, 2 * total], why=each)
            face.equal(
                face.module.allreduce(face.make([each.size() * (face.rank + 1)]), process_set=each), [total], why=each
            )
            grouped = face.module.grouped_allreduce([tensor, tensor], op=face.module.Max, process_set=each)
            face.equal(grouped[1], [each.ranks[-1] + 1, 2 * each.ranks[-1] + 2], why=each)
            alike = face.module.allreduce(face.make([2.0, -4.0]), op=face.module.Adasum, process_set=each)
            face.equal(alike, [2, -4], why=each)
            many = face.module.allreduce(face.make([face.rank] * 70001), op=face.module.Sum, process_set=each)
            face.equal(many, [sum(each.ranks)] * 70001, why=each)


@needs("add_process_set")
def sets_move_rows_among_themselves(face: Face) -> None:
    module = face.module
    with _added(face) as sets:
        for each in [each for each in sets if each.included()]:
            ranks, place = each.ranks, each.rank()
            gathered = module.allgather(face.make([face.rank] * face.rank), process_set=each)
            face.equal(gathered, [rank for rank in ranks for _ in range(rank)], why=each)
            for root in ranks:
                face.equal(module.broadcast(face.make([face.rank, 3]), root, process_set=each), [root, 3], why=each)
            exchanged = module.alltoall(face.make([10 * face.rank + to for to in ranks]), process_set=each)
            face.equal(exchanged, [10 * sender + face.rank for sender in ranks], why=each)
            splits = list(range(len(ranks)))
            sent = face.make([face.rank] * sum(splits))
            exchanged, counts = module.alltoall(sent, splits, process_set=each)
            face.equal(exchanged, [sender for sender in ranks for _ in range(place)], why=each)
            face.equal(counts, [place] * len(ranks), why=each)
            scattered = module.reducescatter(face.make(list(ranks)), op=module.Sum, process_set=each)
            face.equal(scattered, [face.rank * len(ranks)], why=each)


@needs("add_process_set", "sparse_allreduce")
def sets_average_sparse_tensors_by_their_own_size(face: Face) -> None:
    with _added(face) as sets:
        for each in [each for each in sets if each.included()]:
            pair = face.make([each.rank()], dtype="int64"), face.make([each.size()])
            where, values = face.module.sparse_allreduce(pair, process_set=each)
            face.equal(where, list(range(each.size())), why=each)
            face.equal(values, [1] * each.size(), why=each)


@needs("add_process_set")
def sets_have_objects_and_barriers(face: Face) -> None:
    with _added(face) as sets:
        for each in [each for each in sets if each.included()]:
            assert face.module.allgather_object(face.rank, process_set=each) == each.ranks
            root = each.ranks[-1]
            assert face.module.broadcast_object(("it", face.rank), root, process_set=each) == ("it", root)
            face.module.barrier(process_set=each)


@needs("add_process_set", "allreduce_async")
def sets_may_overlap_in_time(face: Face) -> None:
    with _added(face) as sets:
        mine = [each for each in sets if each.included()]
        for turn in range(5):
            handles: list[tuple[Any, Any]] = []
            for each in mine if (face.rank + turn) % 2 else mine[::-1]:
                tensor = face.make([face.rank + turn] * 100)
                handle = face.module.allreduce_async(tensor, name="same", op=face.module.Sum, process_set=each)
                handles.append((each, handle))
            whole = face.module.allreduce(face.make([1.0]), name="same", op=face.module.Sum)
            face.equal(whole, [face.size])
            for each, handle in handles:
                total = sum(rank + turn for rank in each.ranks)
                face.equal(face.module.synchronize(handle), [total] * 100, why=each)


@needs("add_process_set")
def sets_know_their_members(face: Face) -> None:
    module = face.module
    everybody = module.global_process_set
    assert (everybody.process_set_id, everybody.ranks) == (0, list(face.ranks))
    assert (everybody.rank(), everybody.size(), everybody.included()) == (face.rank, face.size, True)
    face.equal(module.allreduce(face.make([1.0]), op=module.Sum, process_set=everybody), [face.size])
    with _added(face) as sets:
        known = module.get_process_set_ids_and_ranks()
        assert known == {0: list(face.ranks), **{each.process_set_id: each.ranks for each in sets}}
        for each in sets:
            assert each.included() == (face.rank in each.ranks) == module.process_set_included(each.process_set_id)
            assert each.size() == len(each.ranks)
            if each.included():
                assert each.ranks[each.rank()] == face.rank
            else:
                face.raises(ArgumentError, each.rank, face.rank)
        again = module.ProcessSet(sets[0].ranks) if sets else everybody
        assert again.process_set_id == (sets[0].process_set_id if sets else 0)
    assert module.get_process_set_ids_and_ranks() == {0: list(face.ranks)}
    face.raises(ArgumentError, lambda: module.process_set_included(99), 99)
    fresh = module.ProcessSet([face.size])
    assert (fresh.process_set_id, fresh.size(), fresh.rank(), fresh.included()) == (None, None, None, None)


@needs("add_process_set")
def ranks_of_sets_may_come_in_any_order(face: Face) -> None:
    if face.size < 3:
        return
    added = face.module.add_process_set([2, 0, 2])
    assert added.ranks == [0, 2]
    face.raises(ArgumentError, lambda: face.module.add_process_set([0, 2]), added.process_set_id, [0, 2])
    assert face.module.remove_process_set(face.module.ProcessSet([0, 2]))
    assert added.process_set_id is None
    assert not face.module.remove_process_set(added)
    assert not face.module.remove_process_set(face.module.global_process_set)
    face.raises(ArgumentError, lambda: face.module.allreduce(face.make([1.0]), process_set=added), "add_process_set")


@needs("add_process_set")
def sets_refuse_who_is_outside(face: Face) -> None:
    with _added(face) as sets:
        for each in sets:
            if each.included():
                outside = face.size - 1 if each.ranks[-1] != face.size - 1 else -1
                call = partial(face.module.broadcast, face.make([1.0]), outside, process_set=each)
                face.misused(call, outside)
                continue
            for call in (
                partial(face.module.allreduce, face.make([1.0]), process_set=each),
                partial(face.module.allgather, face.make([1.0]), process_set=each),
                partial(face.module.broadcast, face.make([1.0]), each.ranks[0], process_set=each),
                partial(face.module.alltoall, face.make([1.0]), process_set=each),
                partial(face.module.reducescatter, face.make([1.0]), process_set=each),
                partial(face.module.barrier, process_set=each),
                partial(face.module.allgather_object, 1, process_set=each),
                partial(face.module.broadcast_object, 1, each.ranks[0], process_set=each),
            ):
                face.misused(call, f"rank {face.rank} is not in", each.ranks)


@needs("add_process_set")
def sets_that_cannot_be_are_refused(face: Face) -> None:
    for ranks in ([], [-1], ["a"], [0.5], 3, None):
        face.raises(ArgumentError, partial(face.module.ProcessSet, ranks))
        face.raises(ArgumentError, partial(face.module.add_process_set, ranks))
    face.raises(ArgumentError, lambda: face.module.add_process_set([0, face.size]), face.size)
    face.raises(ArgumentError, lambda: face.module.add_process_set(list(face.ranks)), "process set 0")
    for wrong in (5, "world", [0]):
        face.misused(partial(face.module.allreduce, face.make([1.0]), process_set=wrong), "process_set")
    if face.size > 1:
        asked = [0] if face.rank == 0 else [face.size - 1]
        face.raises(MismatchError, lambda: face.module.add_process_set(asked), "rank 0", "rank 1")
        assert face.module.get_process_set_ids_and_ranks() == {0: list(face.ranks)}


@needs("add_process_set")
def sets_outlive_a_world(face: Face) -> None:
    module = face.module
    with _added(face) as sets:
        module.barrier()
        module.shutdown()
        first = module.ProcessSet([0])
        assert first.process_set_id is None
        module.init(process_sets=[first] if face.size > 1 else [])
        assert all(each.process_set_id is not None for each in sets)
        assert sorted(each.process_set_id for each in sets) == list(range(1, len(sets) + 1))
        for each in [each for each in sets if each.included()]:
            result = module.allreduce(face.make([1.0]), op=module.Sum, process_set=each)
            face.equal(result, [each.size()], why=each)


@needs("join")
def joined_ranks_count_as_zeros(face: Face) -> None:
    module = face.module
    for average in (False, True):
        for turn in range(face.rank + 1):  # rank r has r + 1 batches
            op = module.Average if average else module.Sum
            result = module.allreduce(face.make([face.size * (face.rank + 1)] * 3), op=op, name=f"batch.{turn}")
            total = sum(rank + 1 for rank in face.ranks if rank >= turn)
            face.equal(result, [total if average else face.size * total] * 3, why=turn)
        assert module.join() == face.size - 1
    face.equal(module.allreduce(face.make([1.0]), op=module.Sum), [face.size], why="afterwards")


@needs("join")
def joined_ranks_bring_no_rows_of_earlier_turns(face: Face) -> None:
    module = face.module
    for turn in range(5):  # more than the turns of a name whose data the core has at once
        if face.rank == face.size - 1 > 0 and turn == 2:
            break
        here = list(face.ranks if turn < 2 else face.ranks[: face.size - 1] or [0])
        exchanged, counts = module.alltoall(face.make([face.rank] * face.size), [1] * face.size, name="exchanged")
        face.equal(exchanged, here, why=turn)
        face.equal(counts, [int(rank in here) for rank in face.ranks], why=turn)
        gathered = module.allgather(face.make([face.rank] * 2), name="gathered")
        face.equal(gathered, [rank for rank in here for _ in range(2)], why=turn)
    module.join()


@needs("join")
def joined_ranks_bring_and_take_no_rows(face: Face) -> None:
    module = face.module
    if face.rank > 0:
        if "allreduce_async" not in face.subject.absent:
            handle = module.allreduce_async(face.make([1.0]), op=module.Sum, name="unnoticed")
            face.equal(module.synchronize(handle), [face.size - 1])
        face.equal(module.allreduce(face.make([1.0]), op=module.Sum, name="noticed"), [face.size - 1])
        face.equal(module.allgather(face.make([face.rank, 5])), [v for rank in face.ranks[1:] for v in (rank, 5)])
        face.equal(module.broadcast(face.make([face.rank]), face.size - 1), [face.size - 1])
        scattered = module.reducescatter(face.make([face.rank] * face.size), op=module.Sum)
        face.equal(scattered, [sum(face.ranks)])
        splits = [0, *[1] * (face.size - 1)]
        exchanged, counts = module.alltoall(face.make([face.rank] * (face.size - 1)), splits)
        face.equal(exchanged, list(face.ranks[1:]))
        face.equal(counts, splits)
        face.raises(farandole.FarandoleError, lambda: module.broadcast(face.make([1.0]), 0), "rank 0", "join")
    last = module.join()
    assert face.size == 1 or last > 0
    again = module.join()  # starts anew
    assert module.allgather_object((last, again)) == [(last, again)] * face.size


@contextmanager
def _added(face: Face) -> Iterator[list[Any]]:
    """Sets that overlap, of one rank, without rank 0; none in a world of one. Removed afterwards."""
    size = face.size
    ranks = [(0,), (size - 1,), tuple(range(size - 1)), tuple(range(1, size)), tuple(range(0, size, 2))]
    distinct = [each for each in dict.fromkeys(ranks) if 0 < len(each) < size]
    sets = [face.module.add_process_set(list(each)) for each in distinct]
    yield sets
    for each in sets:
        assert face.module.remove_process_set(each)
