"""A rank that lives but does not come, or leaves early: the others do not wait in silence, and not for ever."""

import ctypes
import os
import signal
import time
from pathlib import Path

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)


class WakeUp(Exception):
    """Rank 0 has seen what rank 1 was absent for."""


def wake_up(*_):
    raise WakeUp


def begin():
    """Process id of rank 1, for what rank 0 does when it has seen enough."""
    fnp.init()
    signal.signal(signal.SIGUSR1, wake_up)
    return int(fnp.allgather(np.array([os.getpid()]))[1])


def be_absent(how):
    with pytest.raises(WakeUp):
        how()


def sleep_in_here():
    time.sleep(60)


def keep_pythons_lock_in_here():
    ctypes.PyDLL(None).sleep(60)


def calculate_in_here():
    while True:
        sum(range(1000))


def one_is_late(late):
    sleeper = begin()
    if fnp.rank() == 1:
        return be_absent(late)
    began = time.monotonic()
    try:
        fnp.allreduce(np.ones(3), name="gradients")
    except farandole.DeadlineError as error:
        return time.monotonic() - began, str(error)
    finally:
        os.kill(sleeper, signal.SIGUSR1)
    return None


@pytest.mark.parametrize("late", [sleep_in_here, keep_pythons_lock_in_here, calculate_in_here])
def test_who_does_not_come_in_time_is_named(late):
    settings = {"FARANDOLE_TIMEOUT": "3", "FARANDOLE_WARN_AFTER": "1"}
    seconds, message = spawn(2, one_is_late, late, timeout=60, env=settings)[0]
    assert 2.5 < seconds < 30  # the late rank comes after 60 s
    assert "rank 1" in message
    assert "gradients" in message
    assert f"in {late.__name__}" in message  # where its program is
    assert message.count("gradients") == 1


def wait_in_here():
    fnp.allreduce(np.ones(3), name="elsewhere")


def one_is_elsewhere():
    fnp.init()
    fnp.barrier()
    with pytest.raises(farandole.DeadlineError) as caught:
        if fnp.rank() == 1:
            wait_in_here()
        fnp.allreduce(np.ones(3), name="gradients")
    return str(caught.value)


def test_where_a_rank_is_means_a_line_of_its_program():
    settings = {"FARANDOLE_TIMEOUT": "3", "FARANDOLE_WARN_AFTER": "1"}
    for message in spawn(2, one_is_elsewhere, timeout=60, env=settings):
        for call in ("allreduce 'gradients' at ", "allreduce 'elsewhere' at "):
            assert f"{call}tests/faults/{Path(__file__).name}:" in message


def leave_and_sleep():
    fnp.shutdown()
    time.sleep(60)


def one_leaves():
    sleeper = begin()
    if fnp.rank() == 1:
        return be_absent(leave_and_sleep)  # also when it is woken before its call has returned
    try:
        fnp.allreduce(np.ones(3), name="gradients")
    except farandole.PeerLostError as error:
        return str(error)
    finally:
        os.kill(sleeper, signal.SIGUSR1)
    return None


def test_who_leaves_early_is_named():
    message = spawn(2, one_leaves, timeout=60)[0]
    assert "rank 1" in message
    assert "; look at rank 1's output first" in message  # followed by what to do, when rank 1 left before the call
    assert "gradients" in message


def one_stops_for_a_while():
    fnp.init()
    fnp.barrier()
    if fnp.rank() == 1:
        time.sleep(2)
    return float(fnp.allreduce(np.ones(3), op=fnp.Sum)[0])


def test_a_slow_rank_is_waited_for():
    assert spawn(2, one_stops_for_a_while, timeout=60) == [2.0, 2.0]


def the_world_is_built_again():
    fnp.init()
    fnp.barrier()
    if fnp.rank() == 1:
        fnp.shutdown()
    else:
        with pytest.raises(farandole.PeerLostError):
            fnp.allreduce(np.ones(3))
        fnp.shutdown()
    fnp.init()
    result = float(fnp.allreduce(np.ones(3), op=fnp.Sum)[0])
    fnp.shutdown()
    return result


def test_after_a_loss_init_builds_a_new_world():
    assert spawn(2, the_world_is_built_again, timeout=60) == [2.0, 2.0]


def one_tensor_is_missing():
    sleeper = begin()
    handles = [fnp.allreduce_async(np.ones(3), name=f"t{i}") for i in range(3) if not (fnp.rank() == 1 and i == 1)]
    if fnp.rank() == 1:
        return be_absent(sleep_in_here)
    done = [fnp.synchronize(handles[0]), fnp.synchronize(handles[2])]
    assert all(result.tolist() == [1.0] * 3 for result in done)
    try:
        fnp.synchronize(handles[1])
    except farandole.DeadlineError as error:
        return str(error)
    finally:
        os.kill(sleeper, signal.SIGUSR1)
    return None


def test_a_missing_tensor_holds_up_nothing_else():
    message = spawn(2, one_tensor_is_missing, timeout=60, env={"FARANDOLE_TIMEOUT": "3"})[0]
    assert "t1" in message
    assert "rank 1" in message


def stop_in_here():
    os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(600):  # any thread may get the signal that wakes this one, whose sleep it does not end then
        time.sleep(0.1)


def one_does_not_read():
    begin()
    coordinator = int(fnp.allgather(np.array([os.getpid()]))[0])
    fnp.barrier()
    if fnp.rank() == 0:
        return be_absent(stop_in_here)
    try:
        with pytest.raises(farandole.DeadlineError) as caught:
            for number in range(40_000):  # with 5 kB about each
                fnp.allreduce_async(np.ones(1), name=f"{number} {'x' * 5000}")
        return str(caught.value)
    finally:
        os.kill(coordinator, signal.SIGCONT)
        os.kill(coordinator, signal.SIGUSR1)


def test_what_is_kept_for_a_rank_that_reads_nothing_has_a_bound():
    message = spawn(2, one_does_not_read, timeout=60)[1]
    assert "rank 0" in message and "has not read 655" in message and "SIGSTOP" in message
