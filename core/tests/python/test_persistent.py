"""An allreduce that is prepared once and called again and again."""

import gc
import weakref

import farandole.numpy as fnp
import numpy as np
import pytest
from farandole import ArgumentError, MismatchError
from farandole.testing import spawn


def calls_beside_other_forms():
    """Ranks may use different forms of one operation, and the contents are those of the moment of the call."""
    fnp.init()
    values = np.zeros(3, np.float32)
    total = fnp.persistent_allreduce(values, "total", op=fnp.Sum, prescale_factor=2.0)
    assert total.tensor is values
    for step in range(200):
        values[:] = fnp.rank() + step
        if fnp.rank() == 0 or step % 3:
            result = total.start().wait() if step % 2 else total()
            assert result is values
        else:
            fnp.allreduce_(values, name="total", op=fnp.Sum, prescale_factor=2.0)
        assert values.tolist() == [2.0 * (2 * step + 1)] * 3
    large = np.full(200_000, 1.0 + fnp.rank())
    mean = fnp.persistent_allreduce(large)
    assert mean().tolist() == [1.5] * 200_000
    assert mean()[0] == 1.5


def test_calls_beside_other_forms():
    spawn(2, calls_beside_other_forms, timeout=60)


def two_that_start_and_one_that_is_late():
    fnp.init()
    arrays = [np.full(4, float(fnp.rank())) for _ in range(3)]
    each = [fnp.persistent_allreduce(array, f"a{place}", op=fnp.Max) for place, array in enumerate(arrays)]
    handles = [one.start() for one in each]
    assert [handle.wait().tolist() for handle in handles] == [[1.0] * 4] * 3
    each[0].start()  # dropped: the memory stays until the operation is over
    each[0] = None
    fnp.barrier()


def test_several_in_flight_and_one_that_is_dropped():
    spawn(2, two_that_start_and_one_that_is_late, timeout=60)


def calls_of_strided_memory():
    fnp.init()
    whole = np.full((4, 6), float(fnp.rank() + 1))
    total = fnp.persistent_allreduce(whole[:, ::2], "columns", op=fnp.Sum)
    assert total() is total.tensor
    assert total.start().wait() is total.tensor
    assert whole[:, ::2].tolist() == [[6.0] * 3] * 4
    assert whole[:, 1::2].tolist() == [[fnp.rank() + 1] * 3] * 4
    with pytest.raises(TypeError, match="takes no arguments"):
        total(1)


def test_calls_of_strided_memory():
    spawn(2, calls_of_strided_memory, timeout=60)


def ranks_that_disagree():
    fnp.init()
    prepared = fnp.persistent_allreduce(np.ones(2 + fnp.rank()), "x")
    with pytest.raises(MismatchError, match="shape"):
        prepared()


def test_a_mismatch_is_raised_by_the_call():
    spawn(2, ranks_that_disagree, timeout=60)


def what_is_refused():
    fnp.init()
    plain = np.ones((3, 4))
    with pytest.raises(TypeError, match="name must be a string, not 5"):
        fnp.persistent_allreduce(plain.T[1:], 5)
    plain.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        fnp.persistent_allreduce(plain, "x")
    with pytest.raises(TypeError, match="name must be a string, not 5"):
        fnp.persistent_allreduce(np.ones(1), 5)
    prepared = fnp.persistent_allreduce(np.ones(1), "x")
    with pytest.raises(TypeError, match="takes no arguments"):
        prepared(1)
    with pytest.raises(TypeError):
        type(prepared)()
    fnp.shutdown()
    with pytest.raises(fnp.NotInitializedError):
        prepared()
    fnp.init()
    assert prepared().tolist() == [1.0]  # it belongs to no world


def test_refusals():
    spawn(1, what_is_refused, timeout=60)


def memory_goes_with_it():
    fnp.init()
    array = np.ones(1000).view(type("Array", (np.ndarray,), {}))
    gone = weakref.ref(array)
    prepared = fnp.persistent_allreduce(array, "x")
    del array
    gc.collect()
    assert gone() is not None
    prepared()
    del prepared
    gc.collect()
    assert gone() is None


def test_it_keeps_the_tensor_and_no_longer():
    spawn(1, memory_goes_with_it, timeout=60)
