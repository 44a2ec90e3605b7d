"""A call that only some ranks can make: it fails on all of them, and the next calls match."""

import threading

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
import refusals
from farandole import ArgumentError, MismatchError
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)


def array(shape, value):
    return np.full(shape, value, np.float32)


def perform_what_is_drawn(calls):
    fnp.init()
    some = tuple(range(fnp.size() - 1))
    sets = {some: farandole.add_process_set(some), tuple(range(fnp.size())): None}
    return refusals.perform(fnp, array, refusals.drawn(seed=62, calls=calls, ranks=fnp.size()), sets)


def test_random_programs_match_a_model_of_one_process():
    for wrong in spawn(3, perform_what_is_drawn, 500, timeout=100):
        assert not wrong, "\n".join(wrong[:5])


def attempts(*calls):
    told = []
    for call in calls:
        try:
            told.append(call())
        except Exception as error:
            told.append((type(error), str(error)))
    return told


def gather_a_lock_on_rank_1_first():
    fnp.init()
    rank = fnp.rank()
    mine = threading.Lock() if rank == 1 else "first"
    return attempts(
        lambda: fnp.allgather_object(mine),
        lambda: fnp.allgather_object(f"second of {rank}"),
        lambda: fnp.broadcast_object(mine, 1, name="lock"),
        lambda: fnp.broadcast_object(f"again from {rank}", 1, name="lock"),
        lambda: farandole.add_process_set([0, 7] if rank == 1 else [0]),
        lambda: fnp.average_metrics(float(rank), process_set="all" if rank == 1 else None) if rank == 1 else None,
        lambda: float(fnp.allreduce(np.ones(1), op=fnp.Sum)[0]),
    )


def test_a_caught_refusal_fails_the_call_on_the_other_rank_and_shifts_nothing():
    first, second = spawn(2, gather_a_lock_on_rank_1_first, timeout=60)
    assert second[0] == (TypeError, "cannot pickle '_thread.lock' object")
    kind, text = first[0]
    assert kind is MismatchError
    for fact in ("rank 1 (", "test_refusals.py:", "allgather_object raised TypeError: cannot pickle '_thread.lock'"):
        assert fact in text
    assert first[1] == second[1] == ["second of 0", "second of 1"]
    assert (first[2][0], second[2][0]) == (MismatchError, TypeError)
    assert first[3] == second[3] == "again from 1"
    assert (first[4][0], second[4][0]) == (MismatchError, ArgumentError)
    assert "has the ranks 0 to 1 only" in first[4][1] and "rank 1 (" in first[4][1]
    assert second[5][0] is ArgumentError  # of no set, so that nobody has to hear of it
    assert first[6] == second[6] == 2.0


def refuse_and_end(everybody):
    fnp.init()
    fnp.allreduce(np.ones(2), name="known")
    told = attempts(lambda: fnp.allreduce(np.ones(2), op="no" if everybody or fnp.rank() else None, name="known"))
    fnp.join()  # a refusal that nobody waits for does not outlive it
    return told, float(fnp.allreduce(np.ones(1), op=fnp.Sum, name="known")[0])


@pytest.mark.parametrize("everybody", [True, False])
def test_a_known_name_goes_on_after_a_refusal(everybody):
    for rank, (told, total) in enumerate(spawn(2, refuse_and_end, everybody, timeout=60)):
        assert told[0][0] is (ArgumentError if everybody or rank else MismatchError)
        assert total == 2.0
