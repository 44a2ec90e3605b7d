"""Messages from one rank to another."""

import gc
import re
import time
import weakref

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.plugin.distributed import add_own_process_set, recv_async, send_async
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)

SIZES = 0, 1, 1000, 16_384, 16_385, 1_000_000


def exchange_all_sizes():
    fnp.init()
    rank, size = fnp.rank(), fnp.size()
    handles, received = [], []
    for count in SIZES:
        for peer in range(size):
            memory = np.full(count, rank, np.float32)
            handles.append(send_async(memory if count else (0, 0, 8, (0,)), peer, tag=count))
            received.append(np.full(count, -1, np.float32))
            handles.append(recv_async(received[-1] if count else (0, 0, 8, (0,)), peer, tag=count))
            del memory  # the handle keeps it
    for handle in handles:
        handle.wait(30)
    total = fnp.allreduce(np.ones(1), op=fnp.Sum).tolist()
    return [float(each[0]) for each in received if each.size], total


@pytest.mark.parametrize("shared_memory", ["1", "0"], ids=["in a node", "between nodes"])
def test_messages_of_all_sizes_reach_every_rank_and_the_rank_itself(shared_memory):
    for values, total in spawn(3, exchange_all_sizes, timeout=60, env={"FARANDOLE_ARENAS": shared_memory}):
        assert values == [float(peer) for count in SIZES if count for peer in range(3)]
        assert total == [3.0]


def receive_from_anybody():
    fnp.init()
    rank = fnp.rank()
    group = add_own_process_set([0, 1, 2], "g")
    if rank:
        send_async(np.full(3, rank), 0, 7, group).wait(30)
        send_async(np.full(3, 10 * rank), 0, 7).wait(30)
        return None
    seen = []
    for process_set in (None, group):
        for _ in range(2):
            memory = np.zeros(3, np.int64)
            handle = recv_async(memory, None, 7, process_set)
            assert handle.source is None or handle.done()
            handle.wait(30)
            seen.append((handle.source, int(memory[0])))
    return seen[:2], seen[2:]


def test_a_receive_from_any_source_says_whose_it_is_and_sets_are_apart():
    (world, group), *_ = spawn(3, receive_from_anybody, timeout=60)
    assert sorted(world) == [(1, 10), (2, 20)]
    assert sorted(group) == [(1, 1), (2, 2)]


def call_wrongly():
    fnp.init()
    errors = []
    group = add_own_process_set([fnp.rank()])
    for call in (
        lambda: send_async(np.ones(1), 9),
        lambda: send_async(np.ones(1), 1 - fnp.rank(), process_set=group),
        lambda: send_async(np.ones((4, 4)).T[1:], 0),
        lambda: send_async([1, 2], 0),
        lambda: recv_async(np.ones(1), 1 - fnp.rank()).wait(0.05),
    ):
        try:
            call()
        except (ValueError, TypeError, farandole.DeadlineError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    fnp.allreduce(np.ones(1))
    return errors


def test_wrong_calls_and_waits_that_run_out_of_time_raise_and_the_job_goes_on():
    for rank, errors in enumerate(spawn(2, call_wrongly, timeout=60)):
        other = 1 - rank
        expected = (
            "ArgumentError: send to rank 9 with tag 0: rank 9 is not in process set 0",
            f"ArgumentError: send to rank {other} with tag 0 in process set \\d+: rank {other} is not in process set",
            "TypeError: a message needs contiguous",
            "TypeError: a message needs contiguous",
            f"DeadlineError: recv from rank {other} with tag 0 failed on rank {rank}: rank {other} .* has not sent it",
        )
        for error, pattern in zip(errors, expected, strict=True):
            assert re.match(pattern, error), error


def go_on_without_one():
    fnp.init()
    rank = fnp.rank()
    if rank == 2:
        send_async(np.full(3, 2.0), 0).wait(30)
        farandole.shutdown()
        return None
    seen = np.zeros(3)
    if rank == 0:
        handle = recv_async(np.zeros(3), 2, 1)  # which never comes
        with pytest.raises(farandole.PeerLostError, match="recv from rank 2 with tag 1 failed on rank 0: rank 2"):
            handle.wait(30)
        recv_async(seen, 2).wait(30)
        send_async(seen, 1).wait(30)
    else:
        recv_async(seen, 0).wait(30)
    farandole.shutdown()
    return seen.tolist()


def test_a_rank_that_leaves_has_sent_its_messages_and_the_others_go_on():
    assert spawn(3, go_on_without_one, timeout=60) == [[2.0] * 3, [2.0] * 3, None]


DIES = """
import os, signal, time
import farandole.numpy as fnp, numpy as np
from farandole.plugin.distributed import recv_async, send_async
fnp.init()
if fnp.rank() == 1:
    send_async(np.ones(3), 0).wait(30)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
memory = np.zeros(3)
recv_async(memory, 1).wait(30)
print(memory.tolist())
for handle in [recv_async(memory, 1, 5), recv_async(memory, None, 6), send_async(np.zeros(10**6), 1, 7)]:
    try:
        handle.wait(30)
    except fnp.PeerLostError as error:
        print(error)
"""


def test_the_death_of_a_rank_ends_transfers_with_its_name(tmp_path):
    (tmp_path / "dies.py").write_text(DIES)
    received, *errors = spawn(2, tmp_path / "dies.py", timeout=60, check=False)[0].output.splitlines()
    assert received == "[1.0, 1.0, 1.0]"
    calls = "recv from rank 1 with tag 5", "recv from any rank with tag 6", "send to rank 1 with tag 7"
    for error, call in zip(errors, calls, strict=True):
        assert re.match(rf"{call} failed on rank 0: rank 1 \(host .*\) died", error), error


def keep_what_a_message_reads():
    fnp.init()
    if fnp.rank() == 1:
        fnp.allreduce(np.ones(1), name="dropped")
        got = np.zeros(100_000, np.float32)
        recv_async(got, 0).wait(30)
        return bool((got == np.arange(100_000)).all())
    never = send_async(np.ones(1), 1, tag=9)  # of a receive that does not come, before the others
    memory = np.arange(100_000, dtype=np.float32)
    owner = weakref.ref(memory)
    recv_async(np.zeros(1), 1, tag=9)
    send_async((memory.ctypes.data, memory.ctypes.data, 8, memory.shape), 1, owner=memory)
    del memory
    gc.collect()
    kept = owner() is not None
    fnp.allreduce(np.ones(1), name="dropped")
    deadline = time.monotonic() + 30
    while owner() is not None and time.monotonic() < deadline:
        never = send_async(np.ones(1), 0, tag=1)  # which releases what is done
        time.sleep(0.01)
    return kept and owner() is None and never is not None


def test_memory_lives_until_its_message_is_done_though_both_handles_are_dropped():
    assert spawn(2, keep_what_a_message_reads, timeout=60) == [True, True]
