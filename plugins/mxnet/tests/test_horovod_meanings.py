"""One test for each row of what operations mean: join, element types, reductions, and what is an error.

Where this project's meanings differ from Horovod's, the row says which holds.
"""

import math
import threading
import time
import warnings

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
import test_horovod_names
from farandole.testing import world
from rows import array, finished, numbers, raises

pytestmark = pytest.mark.timeout(120)

ROWS = []


def row(function):
    ROWS.append(finished(function))
    return function


DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")


# ---- join


@row
def join_counts_as_zeros_and_divides_by_all():
    for turn in range(hvd.rank() + 1):
        total = 2 if turn == 0 else 1
        assert numbers(hvd.allreduce(array([2.0]), name=f"average.{turn}")) == [total]
        assert numbers(hvd.allreduce(array([3], "int32"), name=f"whole.{turn}")) == [3 * total // 2]
    assert hvd.join() == 1


@row
def join_blocks_until_all_have_joined():
    start = time.monotonic()
    if hvd.rank() == 1:
        time.sleep(0.2)
    hvd.join()
    assert time.monotonic() - start > 0.15


@row
def join_returns_the_last_everywhere():
    assert len(set(hvd.allgather_object(hvd.join()))) == 1


@row
def a_joined_rank_takes_part_in_the_other_operations():
    """The design's meaning: no rows for allgather, alltoall and reducescatter; Horovod's is an error."""
    if hvd.rank() == 1:
        assert numbers(hvd.allgather(array([4.0]))) == [4]
        assert numbers(hvd.broadcast(array([4.0]), 1)) == [4]
        assert numbers(hvd.reducescatter(array([4.0, 5.0]), hvd.Sum)) == [5]
    hvd.join()


@row
def a_joined_root_is_an_error():
    failed = hvd.rank() == 0
    if hvd.rank() == 1:
        time.sleep(0.1)
        try:
            hvd.broadcast(array([1.0]), 0).asnumpy()
        except mx.MXNetError as error:
            failed = isinstance(error, hvd.FarandoleError) and "rank 0" in str(error)
    hvd.join()
    assert failed


@row
def join_comes_after_what_was_pushed():
    slow = array(np.ones((600, 600)))
    for _ in range(5):
        slow = mx.nd.dot(slow, slow) / 600
    result = hvd.allreduce(slow, op=hvd.Sum, name="before")
    hvd.join()
    assert result[0, 0].asscalar() == 2


# ---- element types and reductions


def every_dtype(operation, expected):
    for dtype in DTYPES:
        result = operation(array([hvd.rank() + 1, 2], dtype))
        assert result.dtype == np.dtype(dtype)
        assert numbers(result) == expected, dtype


@row
def dtypes_of_allreduce():
    every_dtype(lambda tensor: hvd.allreduce(tensor, op=hvd.Sum), [3, 4])
    every_dtype(lambda tensor: hvd.grouped_allreduce([tensor, tensor], op=hvd.Max)[1], [2, 2])


@row
def dtypes_of_allgather():
    every_dtype(hvd.allgather, [1, 2, 2, 2])
    every_dtype(lambda tensor: hvd.grouped_allgather([tensor, tensor])[1], [1, 2, 2, 2])


@row
def dtypes_of_broadcast():
    every_dtype(lambda tensor: hvd.broadcast(tensor, 1), [2, 2])


@row
def dtypes_of_alltoall():
    every_dtype(hvd.alltoall, [1, 2] if hvd.rank() == 0 else [2, 2])


@row
def dtypes_of_reducescatter():
    every_dtype(lambda tensor: hvd.reducescatter(tensor, hvd.Sum), [3] if hvd.rank() == 0 else [4])


@row
def booleans_are_reduced_logically():
    tensor = mx.nd.array([hvd.rank() == 0, True, False], dtype="bool")
    assert numbers(hvd.allreduce(tensor, op=hvd.Max)) == [True, True, False]
    raises(ValueError, lambda: hvd.allreduce(tensor), "bool")


@row
def unknown_dtypes_are_refused():
    raises(ValueError, lambda: hvd.allreduce(mx.nd.sparse.zeros("csr", (2, 2))), "tostype")
    raises(TypeError, lambda: hvd.allreduce(np.ones(3)), "ndarray")


@row
def strided_views_are_taken():
    matrix = array([[1.0, 2.0], [3.0, 4.0]])
    assert numbers(hvd.allreduce(matrix[1], op=hvd.Sum)) == [6, 8]
    hvd.allreduce_(matrix[0], op=hvd.Sum)
    assert numbers(matrix) == [[2, 4], [3, 4]]
    assert numbers(hvd.allreduce(matrix.T, op=hvd.Sum)) == [[4, 6], [8, 8]]


@row
def allreduce_has_six_reductions():
    tensor = array([hvd.rank() + 1.0, 3.0])
    results = {hvd.Sum: [3, 6], hvd.Average: [1.5, 3], hvd.Min: [1, 3], hvd.Max: [2, 3], hvd.Product: [2, 9]}
    for op, expected in results.items():
        assert numbers(hvd.allreduce(tensor, op=op)) == expected
    assert numbers(hvd.allreduce(array([2.0, -4.0]), op=hvd.Adasum)) == [2, -4]


@row
def reducescatter_has_them_too_but_adasum():
    tensor = array([hvd.rank() + 1.0, 3.0])
    for op, expected in ((hvd.Min, [1, 3]), (hvd.Max, [2, 3]), (hvd.Product, [2, 9])):
        assert numbers(hvd.reducescatter(tensor, op)) == [expected[hvd.rank()]]
    raises(ValueError, lambda: hvd.reducescatter(tensor, hvd.Adasum), "Adasum")


@row
def averages_of_integers_are_truncated():
    assert numbers(hvd.allreduce(array([-hvd.rank(), hvd.rank()], "int32"))) == [0, 0]


@row
def factors_are_applied_to_floats_and_integers():
    for dtype in ("float16", "float32", "float64", "int32"):
        tensor = array([4, 6], dtype)
        result = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        assert numbers(result) == [12, 18], dtype


@row
def the_legacy_average_warns_on_rank_0():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert numbers(hvd.allreduce(array([hvd.rank() * 2.0]), True)) == [1]
        assert numbers(hvd.allreduce(array([hvd.rank() * 2.0]), average=False)) == [2]
    told = [each for each in caught if "average=" in str(each.message)]
    assert [each.category for each in told] == ([DeprecationWarning] * 2 if hvd.rank() == 0 else [])


@row
def average_and_op_exclude_each_other():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raises(ValueError, lambda: hvd.allreduce(array([1.0]), average=True, op=hvd.Sum), "average")


# ---- errors: what the ranks disagree about


def mismatched(call, *words):
    raises(mx.MXNetError, call, "rank 0", "rank 1", *words)
    raises(hvd.MismatchError, call)
    raises(ValueError, call)


@row
def dtypes_that_differ():
    tensor = array([1], "int32" if hvd.rank() else "float32")
    mismatched(lambda: hvd.allreduce(tensor, name="it", op=hvd.Sum), "int32", "float32")


@row
def operations_that_differ():
    tensor = array([1.0])
    call = (lambda: hvd.broadcast(tensor, 0, "it")) if hvd.rank() else (lambda: hvd.allreduce(tensor, name="it"))
    mismatched(call, "allreduce", "broadcast")


@row
def shapes_that_differ():
    tensor = mx.nd.ones((2 + hvd.rank(),))
    mismatched(lambda: hvd.allreduce(tensor, name="it"), "(2,)", "(3,)")
    mismatched(lambda: hvd.broadcast(tensor, 0), "(2,)", "(3,)")
    mismatched(lambda: hvd.reducescatter(tensor), "(2,)", "(3,)")


@row
def rows_that_differ():
    tensor = mx.nd.ones((2, 2 + hvd.rank()))
    for call in (hvd.allgather, hvd.alltoall):
        raises(hvd.MismatchError, lambda call=call: call(tensor), "rank 0", "rank 1")


@row
def factors_that_differ():
    mismatched(lambda: hvd.allreduce(array([1.0]), prescale_factor=1.0 + hvd.rank()))


@row
def reductions_that_differ():
    mismatched(lambda: hvd.allreduce(array([1.0]), op=hvd.Max if hvd.rank() else hvd.Sum), "max", "sum")


@row
def roots_that_differ():
    mismatched(lambda: hvd.broadcast(array([1.0]), hvd.rank(), "it"))


# ---- errors: what one rank sees alone


@row
def use_before_init():
    hvd.barrier()
    hvd.shutdown()
    for call in (lambda: hvd.allreduce(array([1.0])), lambda: hvd.allgather(array([1.0])), hvd.rank):
        with pytest.raises(hvd.NotInitializedError, match=r"init\(\)"):
            call()
    hvd.init()


@row
def shutdown_fails_what_is_pending():
    hvd.barrier()
    if hvd.rank() == 0:
        pending = hvd.allreduce(array([1.0]), name="alone")
        begun = time.monotonic()
        hvd.shutdown()
        with pytest.raises(mx.MXNetError) as caught:
            pending.asnumpy()
        assert isinstance(caught.value, hvd.FarandoleError)
        assert time.monotonic() - begun < 20
    else:
        hvd.shutdown()
    hvd.init()


@row
def one_name_at_a_time():
    """MXNet computes later: calls of one name are performed one after the other. Horovod refuses the second."""
    results = [hvd.allreduce(array([k + hvd.rank()]), name="same", op=hvd.Sum) for k in range(20)]
    assert [numbers(each) for each in results] == [[2 * k + 1] for k in range(20)]


@row
def a_root_that_is_no_rank():
    for root in (-1, 2):
        raises(ValueError, lambda root=root: hvd.broadcast(array([1.0]), root), root)


@row
def splits_of_the_wrong_length():
    raises(ValueError, lambda: hvd.alltoall(array([1.0, 2.0]), [2]), "splits")


@row
def splits_of_two_dimensions():
    raises(ValueError, lambda: hvd.alltoall(array([1.0, 2.0]), array([[1, 1]], "int32")), "integers")


@row
def splits_that_are_no_integers():
    raises(ValueError, lambda: hvd.alltoall(array([1.0, 2.0]), array([1.0, 1.0])), "integers")


@row
def splits_that_do_not_add_up():
    raises(ValueError, lambda: hvd.alltoall(array([1.0, 2.0]), [2, 2]), "splits")


@row
def rows_that_cannot_be_divided():
    raises(ValueError, lambda: hvd.alltoall(array([1.0, 2.0, 3.0])), "multiple")


@row
def a_set_without_this_rank():
    alone = hvd.add_process_set([0])
    if hvd.rank() == 1:
        with pytest.raises(ValueError, match=r"rank 1 is not in .*\[0\]"):
            hvd.allreduce(array([1.0]), process_set=alone)
    hvd.remove_process_set(alone)


@row
def a_set_that_was_not_added():
    with pytest.raises(ValueError, match="add_process_set"):
        hvd.allreduce(array([1.0]), process_set=hvd.ProcessSet([0]))


@row
def nothing_to_group():
    for call in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        raises(ValueError, lambda call=call: call([]), "at least one")


@row
def the_main_thread_is_not_needed():
    results = []

    def reduce():
        results.append(numbers(hvd.allreduce(array([hvd.rank() + 1.0]), op=hvd.Sum, name="thread")))

    thread = threading.Thread(target=reduce)
    thread.start()
    thread.join(30)
    assert results == [[3]]


@row
def factors_and_rounding_are_those_of_the_core():
    tensor = array([1.0, 2.0]) * (hvd.rank() + 1)
    got = numbers(hvd.allreduce(tensor, prescale_factor=1 / 3, postscale_factor=3.0))
    assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, [1.5, 3.0], strict=True))


@pytest.mark.parametrize("perform", ROWS, ids=lambda perform: perform.__name__)
def test_row(perform):
    world(2).run(perform)


def test_the_rows_are_counted(capsys):
    rows = [*test_horovod_names.ROWS, *ROWS]
    assert len({perform.__name__ for perform in rows}) == len(rows) >= 70
    with capsys.disabled():
        print(f"\n{len(rows)} rows of Horovod's surface are tested with MXNet", flush=True)
