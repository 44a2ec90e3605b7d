"""Ranks that meet after the last of some calls: one that still waits in such a call has made too many."""

import random
import threading
import time

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole import MismatchError
from farandole._keras.agreement import barrier_after
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)


def reduce(name, process_set=None):
    fnp.allreduce(np.ones(3, np.float32), op=fnp.Sum, name=name, process_set=process_set)


def meet_after(calls, process_set=None):
    why = f"rank {farandole.rank()} has made {calls} calls"
    barrier_after("end", process_set, ["gradient."], why, "make as many on all ranks")


def call_and_meet(counts):
    farandole.init()
    mine = counts[farandole.rank()]
    try:
        for _ in range(mine):
            reduce("gradient.0")
        meet_after(mine)
    except MismatchError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("shares_memory", ["0", "1"])
@pytest.mark.parametrize("counts", [(1, 3), (3, 1), (3, 3, 2), (2, 3, 2), (0, 1, 0)], ids=str)
def test_a_rank_that_makes_more_calls_is_told(counts, shares_memory):
    least, most = counts.index(min(counts)), counts.index(max(counts))
    texts = spawn(len(counts), call_and_meet, counts, timeout=60, env={"FARANDOLE_ARENAS": shares_memory})
    for rank, text in enumerate(texts):
        # A rank may come to the barrier when the others have failed already.
        assert f"failed on rank {rank}: " in text or f"cannot start on rank {rank}: " in text
        assert f"rank {least} has made {counts[least]} calls" in text or counts.count(min(counts)) > 1
        assert f"but rank {most} " in text
        assert "make as many on all ranks" in text


def call_with_pauses(rounds):
    farandole.init()
    pauses = random.Random(farandole.rank())
    for _ in range(rounds):
        for place in range(3):
            time.sleep(pauses.choice([0, 0, 0.03]))
            reduce(f"gradient.{place}")
        time.sleep(pauses.choice([0, 0.1]))
        meet_after(3)
    return True


@pytest.mark.parametrize("shares_memory", ["0", "1"])
def test_slow_ranks_meet(shares_memory):
    assert all(spawn(3, call_with_pauses, 20, timeout=60, env={"FARANDOLE_ARENAS": shares_memory}))


def call_others_meanwhile():
    """Rank 1 is late with calls of other names and sets, while it waits at the meeting for rank 0."""
    farandole.init()
    pair, rank = farandole.add_process_set([0, 1]), farandole.rank()
    calls = [("model.gradient.0", None), ("gradient.model.0", None)] + [("gradient.0", pair)] * (rank < 2)
    for name, process_set in calls:
        reduce(name, process_set)
    meeting = threading.Thread(target=meet_after, args=(0,))
    if rank == 1:
        meeting.start()
    for name, process_set in calls:
        if rank == 1:
            time.sleep(0.2)  # in which it looks for ranks that wait for it several times
        reduce(name, process_set)
    if rank != 1:
        meeting.start()
    meeting.join()
    return reduce("after")


def test_other_calls_may_come_late():
    spawn(3, call_others_meanwhile, timeout=60)


def lose_a_rank_in_the_meeting():
    farandole.init()
    meet_after(0)
    if farandole.rank() == 1:
        farandole.shutdown()
        return ""
    with pytest.raises(farandole.PeerLostError) as caught:
        meet_after(0)
    return str(caught.value)


def test_a_rank_that_leaves_ends_the_meeting():
    assert "rank 1" in spawn(2, lose_a_rank_in_the_meeting, timeout=60)[0]
