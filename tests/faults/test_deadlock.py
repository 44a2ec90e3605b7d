"""Ranks that wait for each other for ever are told at once; those of which a thread may still help are left alone."""

import re
import threading
import time

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(100)

PATIENT = {"FARANDOLE_WARN_AFTER": "1", "FARANDOLE_TIMEOUT": "60"}


def reduce(name):
    return fnp.allreduce(np.ones(3, np.float32), op=fnp.Sum, name=name)


def told(call):
    """The text of the call's error."""
    began = time.monotonic()
    with pytest.raises(farandole.DeadlineError) as caught:
        call()
    assert time.monotonic() - began < 20
    return str(caught.value)


def call_different_things(are_known=False):
    farandole.init()
    for name in ("here", "there") * 3 if are_known else ["both"]:
        reduce(name)
    if farandole.rank() == 1:
        threading.Thread(target=lambda: None).start()  # one that is over
    return told(lambda: reduce("here" if farandole.rank() == 0 else "there"))


@pytest.mark.parametrize("are_known", [False, True])
@pytest.mark.parametrize("shares_memory", ["0", "1"])
def test_two_ranks_that_call_different_things(shares_memory, are_known):
    env = {**PATIENT, "FARANDOLE_ARENAS": shares_memory}
    texts = spawn(2, call_different_things, are_known, timeout=60, env=env)
    for text in texts:
        assert "neither has a thread that could still call what the other needs" in text
        assert "allreduce 'here'" in text and "allreduce 'there'" in text
        assert "every rank must make both calls" in text and "join()" not in text
        assert "test_deadlock.py" in text, "the user's line"
        assert "FARANDOLE_TIMEOUT" not in text


def test_a_timeline_whose_thread_calls_nothing_is_no_doubt(tmp_path):
    env = {**PATIENT, "FARANDOLE_TIMELINE": str(tmp_path / "trace.json")}
    for text in spawn(2, call_different_things, timeout=60, env=env):
        assert "neither has a thread that could still call what the other needs" in text


def have_uneven_batches():
    farandole.init()
    for _ in range(3):
        reduce(None)
    return told(lambda: fnp.broadcast(np.ones(3), 0, name="metric") if farandole.rank() == 2 else reduce(None))


def test_a_rank_with_fewer_batches():
    for text in spawn(3, have_uneven_batches, timeout=60, env=PATIENT):
        assert "broadcast 'metric'" in text and "allreduce" in text and "rank 2" in text


def call_on_rank_0_only(kind):
    farandole.init()
    reduce("step")
    calls = {
        "save_checkpoint": lambda: farandole.save_checkpoint("/proc/nowhere", lambda path: None),
        "broadcast_object": lambda: farandole.broadcast_object(1),
        "allreduce": lambda: fnp.allreduce(np.ones(5)),
    }
    return told(calls[kind] if farandole.rank() == 0 else lambda: reduce("step"))


@pytest.mark.parametrize(
    ("ranks", "kind", "call"),
    [
        (2, "save_checkpoint", "save_checkpoint at"),
        (2, "broadcast_object", "broadcast_object at"),
        (3, "allreduce", "unnamed allreduce number 0 at"),
    ],
)
def test_a_call_that_one_rank_makes_alone_is_named_on_all_ranks(ranks, kind, call):
    for rank, text in enumerate(spawn(ranks, call_on_rank_0_only, kind, timeout=60, env=PATIENT)):
        assert "every rank must make each call" in text
        assert re.search(rf"only rank 0 has made {call} \S*test_deadlock.py:\d+", text)
        assert re.search(r"allreduce 'step' at \S*test_deadlock.py:\d+", text)
        assert rank == 0 or f" failed on rank {rank}: rank " in text
        assert "this one" not in text and "join()" not in text


def help_by_another_thread(late):
    farandole.init()
    results = []

    def help_out():
        time.sleep(late)
        results.append(reduce("here" if farandole.rank() == 1 else "there"))

    helper = threading.Thread(target=help_out)
    helper.start()
    results.append(reduce("here" if farandole.rank() == 0 else "there"))
    helper.join()
    assert [each[0] for each in results] == [2.0, 2.0]


def test_a_thread_that_may_still_call_is_waited_for():
    spawn(2, help_by_another_thread, 5.0, timeout=60, env=PATIENT)


def compute_for_long():
    farandole.init()
    reduce("both")
    handle = fnp.allreduce_async(np.ones(3, np.float32), op=fnp.Sum, name="early") if farandole.rank() == 1 else None
    if farandole.rank() == 1:
        time.sleep(5)  # computes, and is needed
        reduce("loss")
        handle.wait()
    else:
        reduce("loss")
        reduce("early")


def test_a_rank_that_computes_is_waited_for():
    spawn(2, compute_for_long, timeout=60, env=PATIENT)
