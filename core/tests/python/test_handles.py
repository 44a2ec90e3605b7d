"""Handles and the short way of one array: what is kept alive, for how long, and what is refused."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import farandole.numpy as fnp
import numpy as np
import pytest
from farandole import NotInitializedError
from farandole._runtime.native import core
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)

ALLREDUCE = 0
PARAMETERS = ("x", 0, 0, 1.0, 1.0, 0)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def drop_before_the_other_comes(elements):
    fnp.init()
    for turn in range(10):
        array = np.full(elements, turn + fnp.rank(), np.float32)
        seen = weakref.ref(array)
        if fnp.rank() == 0:
            fnp.allreduce_async_(array, op=fnp.Sum, name="dropped")
        else:
            fnp.barrier(), fnp.allreduce_(array, op=fnp.Sum, name="dropped")
            assert (array == 2 * turn + 1).all()
        del array
        gc.collect()
        if fnp.rank() == 0:
            assert seen() is not None, "the core has yet to read it"
            fnp.barrier()
        fnp.barrier()
        deadline = time.monotonic() + 30
        released = False
        while not released and time.monotonic() < deadline:
            fnp.barrier()
            released = all(fnp.allgather_object(seen() is None))
        assert released, "nobody needs it any more"


@pytest.mark.parametrize("elements", [4, 300_000])
def test_memory_in_flight_outlives_its_handle(elements):
    spawn(2, drop_before_the_other_comes, elements, timeout=60)


def drop_behind_one_that_is_stuck():
    fnp.init()
    fnp.barrier()
    stuck = fnp.allreduce_async(np.ones(4), name="stuck") if fnp.rank() == 0 else None
    del stuck  # rank 1 comes to it last
    arrays = [np.ones(300_000) for _ in range(20)]
    seen = [weakref.ref(array) for array in arrays]
    for number, array in enumerate(arrays):
        fnp.allreduce_async_(array, name=f"free {number}")
    del array, arrays
    deadline = time.monotonic() + 30
    while not (released := all(fnp.allgather_object(all(each() is None for each in seen)))):
        if time.monotonic() > deadline:
            break
    if fnp.rank() == 1:
        fnp.allreduce(np.ones(4), name="stuck")
    fnp.barrier()
    assert released, f"{sum(each() is not None for each in seen)} of {len(seen)} are kept"


def test_what_is_stuck_keeps_nothing_else():
    spawn(2, drop_behind_one_that_is_stuck, timeout=60)


def reduce_often(times):
    fnp.init()
    array, names = np.ones(16, np.float32), [f"layer.{i}" for i in range(50)]

    def many(count):
        for _ in range(count // 100):
            handles = [fnp.allreduce_async(array, op=fnp.Sum, name=name) for name in names]
            fnp.allreduce_async(array, op=fnp.Sum)  # dropped
            for handle in handles:
                fnp.synchronize(handle)
            for _ in range(50):
                fnp.allreduce(array, op=fnp.Sum, name="again")

    many(times // 5)
    before = resident_bytes()
    many(times)
    return resident_bytes() - before


def test_100_000_operations_leave_nothing_behind():
    for growth in spawn(2, reduce_often, 100_000, timeout=100):
        assert growth < 2**20  # 10 bytes each


def look_at_arrays():
    fnp.init()
    kinds = "u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 ?".split()
    for kind in kinds:
        array = np.array([[1, 0, 1], [1, 1, 0]], kind)
        assert core.run_one(ALLREDUCE, array, array, None, ("x", 3, *PARAMETERS[2:]))
        assert array.tolist() == [[1, 0, 1], [1, 1, 0]]
    plain, read_only = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3)
    read_only.flags.writeable = False
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float64)
    others = [plain.T, plain[:, :2], plain.astype(">f8"), plain.astype("M8[s]")]
    refused = [*others, unaligned, plain.astype(object), plain.astype("g"), read_only]
    assert [core.run_one(ALLREDUCE, array, array, None, PARAMETERS) for array in refused] == [False] * len(refused)
    for target in (np.zeros((3, 2)), np.zeros((2, 3), np.float32), plain.view(np.recarray)):
        assert core.submit_one(ALLREDUCE, plain, target, None, PARAMETERS) is None
    assert core.run_one(ALLREDUCE, read_only, plain, None, PARAMETERS)
    assert (plain == read_only).all()
    for shape in [(), (0,), (2, 0, 3), (1,) * 20]:
        array = np.ones(shape)
        assert core.run_one(ALLREDUCE, array, array, None, PARAMETERS)
    address = plain.ctypes.data
    assert core.run_one(ALLREDUCE, plain, None, (address, address, 9, (2, 3)), PARAMETERS)


def test_arrays_show_their_memory():
    spawn(1, look_at_arrays, timeout=60)


@pytest.mark.parametrize(
    ("call", "parameters", "error"),
    [
        (None, PARAMETERS[:5], TypeError),
        (None, "xxxxxx", TypeError),
        (None, (1, *PARAMETERS[1:]), TypeError),
        (None, ("x", "0", *PARAMETERS[2:]), TypeError),
        (None, ("x", 0, 2**40, *PARAMETERS[3:]), OverflowError),
        (None, ("x", 0, 0, "1", *PARAMETERS[4:]), TypeError),
        (None, (*PARAMETERS[:5], 0.5), TypeError),
        (None, ("x", 99, *PARAMETERS[2:]), ValueError),
        ((0, 0, 8), PARAMETERS, TypeError),
        ((0, 0, 8, [0]), PARAMETERS, TypeError),
        ((0, 0, 8, ("3",)), PARAMETERS, TypeError),
        ((0, 0, 99, (0,)), PARAMETERS, ValueError),
        ((0, 0, 8, (4,)), PARAMETERS, NotInitializedError),
    ],
)
def test_wrong_arguments_of_one(call, parameters, error):
    array = np.ones(4)
    for function in (core.submit_one, core.run_one):
        with pytest.raises(error):
            function(ALLREDUCE, array, array, call, parameters)
    with pytest.raises(TypeError, match="5 arguments"):
        core.run_one(ALLREDUCE)


def test_what_is_no_array_is_an_error():
    with pytest.raises(AttributeError, match="__array_struct__"):
        core.run_one(ALLREDUCE, [1], [1], None, PARAMETERS)


def map_results():
    fnp.init()
    array, calls = np.ones(4), []

    def twice(result):
        calls.append(result)
        return 2 * result

    handle = fnp.allreduce_async_(array, op=fnp.Sum, name="mapped")
    doubled = handle.map(twice)
    largest = doubled.map(max)
    assert isinstance(largest, fnp.Handle)
    assert calls == [] and largest.wait() == 4 == largest.wait()
    assert doubled.wait() is doubled.wait() and len(calls) == 1 and calls[0] is array
    assert largest.done() and fnp.poll(largest)

    failing = fnp.allreduce_async(array, op=fnp.Sum).map(lambda result: result["no"])
    for _ in range(2):
        with pytest.raises(IndexError):
            failing.wait()
    seen = weakref.ref(array)
    del array, handle, doubled, failing
    calls.clear()
    gc.collect()
    assert seen() is None, "who has waited keeps the last result alone"


def test_a_function_of_a_result_is_called_once_by_whoever_waits():
    spawn(2, map_results, timeout=60)


def map_while_two_threads_wait():
    fnp.init()
    entered, go, calls = threading.Event(), threading.Event(), []

    def slow(result):
        calls.append(result)
        entered.set()
        assert go.wait(30)
        return object()

    handle = fnp.allreduce_async(np.ones(4), name="mapped").map(slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(handle.wait)
        assert entered.wait(30)
        second = pool.submit(handle.wait)
        time.sleep(0.3)  # in which the second one would call it
        go.set()
        assert first.result(30) is second.result(30)
    assert len(calls) == 1

    circle = [fnp.allreduce_async(np.ones(4), name="circle")]
    circle.append(circle[0].map(lambda _: circle[1].wait()))
    with pytest.raises(RuntimeError, match=r"waits for the handle that map\(\) has returned"):
        circle[1].wait()


def test_of_two_threads_that_wait_one_calls_the_function():
    spawn(1, map_while_two_threads_wait, timeout=60)


def test_handles_are_made_by_the_core_alone():
    with pytest.raises(TypeError, match="cannot create"):
        core.Handle()
