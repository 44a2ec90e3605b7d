"""The works and futures of asynchronous operations of torch.distributed over the backend "farandole"."""

import datetime
import gc
import threading
import time
import weakref

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import world
from test_distributed import joined
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]


def complete_after_wait():
    """Whether the future was asked for before or after."""
    _, size = joined()
    for attempt in range(200):
        work = dist.all_reduce(torch.ones(2), async_op=True)
        early = work.get_future() if attempt % 2 else None
        assert work.wait(datetime.timedelta(seconds=60))
        for future in filter(None, (early, work.get_future())):
            assert future.done()
            assert future.value()[0].tolist() == [size] * 2


def complete_after_an_error():
    rank, size = joined()
    seen = []
    for is_early in (False, True):
        work = dist.all_reduce(torch.ones(2 + rank), async_op=True)
        early = work.get_future() if is_early else None
        if early is not None:
            early.add_done_callback(lambda future: seen.append(future.done()))
        with pytest.raises(hvd.MismatchError, match=r"rank 0.*rank 1"):
            work.wait()
        for future in filter(None, (early, work.get_future())):
            assert future.done()
            with pytest.raises(RuntimeError, match=r"MismatchError.*rank 0.*rank 1"):
                future.value()
    failed = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda _: 1 / 0)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        failed.wait()
    assert dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0].tolist() == [size] * 2
    assert seen == [True]


def callbacks_that_wait():
    """For operations that they begin, in chains and several at a time, while the program goes on with others."""
    _, size = joined()

    def summed_again(future):
        total = future.wait()[0] if isinstance(future.wait(), list) else future.wait()
        return dist.all_reduce(total.clone(), async_op=True).get_future().wait()[0]

    for _ in range(20):
        chains = []
        for place in range(1, 4):  # all of one shape: one that met another's would give a wrong sum
            future = dist.all_reduce(torch.full((2,), float(place)), async_op=True).get_future()
            chains.append(future.then(summed_again).then(summed_again))
        blocking = torch.full((2,), 9.0)
        dist.all_reduce(blocking)
        assert [each.wait().tolist() for each in chains] == [[place * size**3.0] * 2 for place in range(1, 4)]
        assert blocking.tolist() == [9.0 * size] * 2
    first, second = (dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2))
    later = second.get_future()
    assert first.get_future().then(lambda _: later.wait()[0]).wait().tolist() == [size] * 2


def passed_out_of_order():
    """What is received by one tag need not be there before what is received by another."""
    rank, _ = joined()
    eight, nine = torch.zeros(1), torch.zeros(1)
    if rank == 1:
        futures = [dist.irecv(each, 0, tag=tag).get_future() for each, tag in ((eight, 8), (nine, 9))]
        assert futures[1].then(lambda future: future.value()[0].item()).wait() == 9
    if rank == 0:
        dist.send(torch.tensor([9.0]), 1, tag=9)
    dist.barrier()
    if rank == 0:
        dist.send(torch.tensor([8.0]), 1, tag=8)
    if rank == 1:
        assert futures[0].wait()[0].item() == 8


def asynchronous_forms():
    """Of all collectives, by way of the future, and of a wait in several threads."""
    rank, size = joined()
    mine, total = torch.full((2,), rank + 1.0), sum(range(1, size + 1))

    def lists():
        return [torch.empty(2) for _ in range(size)]

    got = {name: torch.empty(2 * size) for name in ("all_gather", "all_to_all")}
    part, gathered, exchanged = torch.empty(2), lists(), lists()
    calls = {
        "all_reduce": lambda: dist.all_reduce(mine.clone(), async_op=True),
        "broadcast": lambda: dist.broadcast(mine.clone(), 1, async_op=True),
        "reduce": lambda: dist.reduce(mine.clone(), 0, async_op=True),
        "all_gather_list": lambda: dist.all_gather(gathered, mine, async_op=True),
        "all_gather": lambda: dist.all_gather_into_tensor(got["all_gather"], mine, async_op=True),
        "gather": lambda: dist.gather(mine, lists() if rank == 0 else None, 0, async_op=True),
        "scatter": lambda: dist.scatter(part, [mine] * size if rank == 0 else None, 0, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, torch.ones(2 * size), async_op=True),
        "all_to_all_list": lambda: dist.all_to_all(exchanged, [mine] * size, async_op=True),
        "all_to_all": lambda: dist.all_to_all_single(got["all_to_all"], torch.ones(2 * size), async_op=True),
        "barrier": lambda: dist.barrier(async_op=True),
    }
    results = {name: call().get_future().wait() for name, call in calls.items()}
    assert results["all_reduce"][0].tolist() == [total] * 2
    assert results["broadcast"][0].tolist() == [2.0] * 2
    assert [each[0].item() for each in gathered] == list(range(1, size + 1))
    for name, call in calls.items():
        work = call()
        threads = [threading.Thread(target=work.wait) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert work.is_success() and work.get_future().done(), name


def dropped_works():
    """The group keeps those under way and a few others, since torch may have them; it keeps no more."""
    rank, size = joined()
    group = dist.new_group()
    outputs = [torch.zeros(2 * size) for _ in range(50)]
    if rank == 0:
        early = [weakref.ref(dist.all_gather_into_tensor(each, torch.ones(2), group, True)) for each in outputs]
        gc.collect()
        assert all(each() is not None for each in early)
    hvd.barrier()
    if rank:
        for each in outputs:
            dist.all_gather_into_tensor(each, torch.ones(2), group)
    works = [weakref.ref(dist.all_reduce(torch.ones(2), group=group, async_op=True)) for _ in range(100)]
    waited = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    waited.wait()
    works.append(weakref.ref(waited))
    del waited
    deadline = time.monotonic() + 30
    while any(each.is_pending() for each in group.dropped) and time.monotonic() < deadline:
        time.sleep(0.01)
    dist.all_reduce(torch.ones(2), group=group, async_op=True)  # lets those go that are complete
    gc.collect()
    assert works[-1]() is None
    assert sum(each() is not None for each in works) <= 16
    dist.destroy_process_group(group)
    del group
    gc.collect()
    assert not any(each() is not None for each in works)


CASES = (
    complete_after_wait,
    complete_after_an_error,
    callbacks_that_wait,
    passed_out_of_order,
    asynchronous_forms,
    dropped_works,
)


@pytest.mark.parametrize("case", CASES)
def test_futures(case):
    world(2).run(case)
