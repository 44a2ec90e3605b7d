"""Cases that only numpy has: kinds of arrays, memory that cannot be used in place, scalars."""

import farandole.numpy as fnp
import numpy as np
import pytest


@pytest.fixture(scope="module", autouse=True)
def alone():
    fnp.init()
    yield
    fnp.shutdown()


class Kind(np.ndarray):
    pass


def test_results_are_of_the_kind_given():
    array = np.arange(6.0).reshape(2, 3).view(Kind)
    for result in (fnp.allreduce(array), fnp.allgather(array), fnp.broadcast(array, 0)):
        assert type(result) is Kind
        assert np.array_equal(result, array)


def test_memory_order_does_not_matter():
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    result = fnp.allreduce(array)
    assert result.flags.c_contiguous
    assert np.array_equal(result, array)


def test_read_only_arrays_can_be_sent_but_not_written():
    array = np.arange(3.0)
    array.flags.writeable = False
    assert np.array_equal(fnp.allreduce(array), array)
    with pytest.raises(ValueError, match="read-only"):
        fnp.allreduce_(array)


def test_scalars_are_accepted():
    assert fnp.allreduce(np.float32(2.5)) == 2.5
    assert fnp.allreduce(np.array(2.5)).shape == ()


def test_what_is_no_array_is_refused():
    for wrong in (3.0, [1.0, 2.0], "text", None):
        with pytest.raises(TypeError, match=r"numpy\.asarray"):
            fnp.allreduce(wrong)


@pytest.mark.parametrize("dtype", ["complex256", "float128", "U3", "O", ">f4", ">c8", "datetime64[s]"])
def test_other_dtypes_are_named(dtype):
    with pytest.raises(ValueError, match=r"cannot be reduced or sent; supported are uint8.*complex128"):
        fnp.allreduce(np.zeros(2, dtype=dtype))


WRONG_TYPES = (
    ({"name": 3}, "name must be a string, not 3"),
    ({"name": ["loss"]}, r"name must be a string, not \['loss'\]"),
    ({"prescale_factor": "2"}, "prescale_factor must be a number, not '2'"),
    ({"postscale_factor": [2]}, r"postscale_factor must be a number, not \[2\]"),
    ({"compression": "fp16"}, "compression must be a compressor such as Compression.fp16, not 'fp16'"),
)
REDUCING = ("allreduce", "allreduce_async", "grouped_allreduce", "reducescatter", "grouped_reducescatter")


@pytest.mark.parametrize(("arguments", "words"), WRONG_TYPES)
@pytest.mark.parametrize("name", REDUCING)
def test_an_argument_of_a_wrong_type_is_named(name, arguments, words):
    if name.endswith("_async") and "compression" in arguments:
        return
    for array in (np.ones(4), np.ones(8)[::2]):  # as it is, and staged
        with pytest.raises(TypeError, match=words):
            getattr(fnp, name)([array] if name.startswith("grouped") else array, **arguments)


@pytest.mark.parametrize("root", ["0", None, 0.0])
def test_a_root_of_a_wrong_type_is_named(root):
    with pytest.raises(TypeError, match=f"root_rank must be a whole number, not {root!r}"):
        fnp.broadcast(np.ones(4), root)


def test_masked_arrays_are_refused():
    with pytest.raises(ValueError, match="masked"):
        fnp.allreduce(np.ma.masked_array([1.0, 2.0], mask=[True, False]))
    with pytest.raises(ValueError, match="masked"):
        fnp.allgather(np.ma.masked_array([1.0, 2.0], mask=[True, False]))


def test_grouped_calls_take_lists():
    with pytest.raises(TypeError, match="list or tuple"):
        fnp.grouped_allreduce(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="at least one"):
        fnp.grouped_allreduce([])


def test_big_objects_survive():
    data = np.random.default_rng(0).bytes(5_000_000)
    assert fnp.broadcast_object(data) == data
    assert fnp.allgather_object(data) == [data]


def test_allgather_results_can_be_written():
    result = fnp.allgather(np.zeros(4))
    result += 1
    assert result.sum() == 4
