"""One test for each row of what Horovod's users know: names, signatures, meanings, element types, errors.

Where this project's meanings differ from Horovod's, the row says which holds.
"""

import inspect
import math
import threading
import time
import warnings

import farandole
import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from farandole.testing import world

pytestmark = pytest.mark.timeout(120)

ROWS = []
DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")


def row(function):
    ROWS.append(function)
    return function


def array(values, dtype="float32"):
    return mx.nd.array(values, dtype=dtype)


def numbers(tensor):
    return tensor.asnumpy().tolist()


def everyone(rule):
    """A closed formula of the rank, summed."""
    return sum(rule(rank) for rank in range(hvd.size()))


def parameters(function):
    return [
        name if each.default is inspect.Parameter.empty else (name, each.default)
        for name, each in inspect.signature(function).parameters.items()
    ]


def raises(kind, call, *words):
    with pytest.raises(kind) as caught:
        call()
        mx.nd.waitall()
    assert isinstance(caught.value, kind)
    for word in words:
        assert str(word) in str(caught.value), str(caught.value)
    assert numbers(hvd.allreduce(array([1.0]), op=hvd.Sum)) == [hvd.size()], "the job does not go on"


# ---- common names


@row
def init_again_does_nothing():
    hvd.init()
    hvd.init(process_sets="dynamic")
    assert hvd.size() == farandole.size()


@row
def init_takes_process_sets():
    hvd.barrier()
    hvd.shutdown()
    first = hvd.ProcessSet([0])
    hvd.init(process_sets=[first])
    assert first.process_set_id == 1
    hvd.remove_process_set(first)


@row
def init_refuses_a_set_that_comes_twice():
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ValueError, match="already"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    hvd.init()


@row
def init_may_follow_shutdown():
    hvd.barrier()
    hvd.shutdown()
    hvd.shutdown()
    hvd.init()
    assert numbers(hvd.allreduce(array([1.0]), op=hvd.Sum)) == [hvd.size()]


@row
def is_initialized():
    assert hvd.is_initialized() is True
    hvd.barrier()
    hvd.shutdown()
    assert hvd.is_initialized() is False
    hvd.init()


@row
def places_on_one_host():
    assert (hvd.size(), hvd.local_size(), hvd.cross_size()) == (2, 2, 1)
    assert (hvd.local_rank(), hvd.cross_rank()) == (hvd.rank(), 0)


@row
def is_homogeneous():
    assert hvd.is_homogeneous() is True


@row
def reductions_are_integers():
    ops = [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product]
    assert all(isinstance(op, int) for op in ops)
    assert len(set(ops)) == 6


@row
def process_sets_know_their_ranks():
    alone = hvd.add_process_set(hvd.ProcessSet([1]))
    assert alone.ranks == [1]
    assert alone.included() == (hvd.rank() == 1)
    assert alone.size() == 1
    assert hvd.rank() != 1 or alone.rank() == 0
    assert hvd.remove_process_set(alone) is True
    assert (alone.process_set_id, alone.size(), alone.included()) == (None, None, None)


@row
def the_global_process_set_has_number_0():
    assert hvd.global_process_set.process_set_id == 0
    assert hvd.remove_process_set(hvd.global_process_set) is False


@row
def process_sets_are_added_once():
    added = hvd.add_process_set([0])
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set([0])
    hvd.remove_process_set(added)


@row
def compression_none_and_fp16():
    tensor = array([hvd.rank() + 1.0])
    for compressor, same in ((hvd.Compression.none, True), (hvd.Compression.fp16, False)):
        sent, context = compressor.compress(tensor)
        assert (sent is tensor) == same
        assert compressor.decompress(sent, context).dtype == np.float32
    assert hvd.Compression.fp16.compress(tensor)[0].dtype == np.float16


# ---- horovod.mxnet: arguments in their order, and what they do

_REDUCING = [("average", None), ("name", None), ("priority", 0), ("prescale_factor", 1.0), ("postscale_factor", 1.0)]
_REDUCING += [("process_set", None), ("op", None)]


@row
def allreduce():
    assert parameters(hvd.allreduce)[:8] == ["tensor", *_REDUCING]
    tensor = array([1.0, 2.0]) * (hvd.rank() + 1)
    assert numbers(hvd.allreduce(tensor, None, "named", -3, 0.5, 4.0, hvd.global_process_set, hvd.Sum)) == [6, 12]
    assert numbers(hvd.allreduce(tensor)) == [1.5, 3]
    assert numbers(tensor) == [hvd.rank() + 1, 2 * hvd.rank() + 2]


@row
def allreduce_in_place():
    assert parameters(hvd.allreduce_)[:8] == ["tensor", *_REDUCING]
    tensor = array([hvd.rank() + 1.0])
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert numbers(tensor) == [3]


@row
def grouped_allreduce():
    assert parameters(hvd.grouped_allreduce)[:8] == ["tensors", *_REDUCING]
    first, second = hvd.grouped_allreduce([array([1.0]), array([2, 3], "int32")], op=hvd.Sum, priority=5)
    assert (numbers(first), numbers(second)) == ([2], [4, 6])


@row
def grouped_allreduce_in_place():
    assert parameters(hvd.grouped_allreduce_)[:8] == ["tensors", *_REDUCING]
    tensors = [array([1.0]), array([[2.0, 3.0]])]
    results = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    assert all(a is b for a, b in zip(results, tensors, strict=True))
    assert [numbers(each) for each in tensors] == [[2], [[4, 6]]]


@row
def allgather():
    assert parameters(hvd.allgather) == ["tensor", ("name", None), ("priority", 0), ("process_set", None)]
    tensor = mx.nd.full((hvd.rank() + 1, 2), hvd.rank())
    assert numbers(hvd.allgather(tensor, "gathered", -1)) == [[0, 0], [1, 1], [1, 1]]


@row
def grouped_allgather():
    assert parameters(hvd.grouped_allgather) == ["tensors", ("name", None), ("priority", 0), ("process_set", None)]
    first, second = hvd.grouped_allgather([array([hvd.rank()]), array([[hvd.rank()]])])
    assert (numbers(first), numbers(second)) == ([0, 1], [[0], [1]])


_BROADCASTING = ["tensor", "root_rank", ("name", None), ("priority", 0), ("process_set", None)]


@row
def broadcast():
    assert parameters(hvd.broadcast) == _BROADCASTING
    tensor = array([hvd.rank() + 7.0])
    assert numbers(hvd.broadcast(tensor, 1, "sent", -2)) == [8]
    assert numbers(tensor) == [hvd.rank() + 7]


@row
def broadcast_in_place():
    assert parameters(hvd.broadcast_) == _BROADCASTING
    tensor = array([hvd.rank() + 7.0])
    assert hvd.broadcast_(tensor, root_rank=1) is tensor
    assert numbers(tensor) == [8]


@row
def the_root_in_a_set_is_a_rank_of_the_world():
    alone = hvd.add_process_set([1])
    if alone.included():
        assert numbers(hvd.broadcast(array([5.0]), 1, process_set=alone)) == [5]
    hvd.remove_process_set(alone)


@row
def alltoall():
    wanted = ["tensor", ("splits", None), ("name", None), ("priority", 0), ("process_set", None)]
    assert parameters(hvd.alltoall) == wanted
    sent = array([10 * hvd.rank(), 10 * hvd.rank() + 1])
    assert numbers(hvd.alltoall(sent)) == [hvd.rank(), 10 + hvd.rank()]


@row
def alltoall_with_splits_returns_what_was_received():
    splits = array([1, 2] if hvd.rank() == 0 else [2, 1], "int32")
    result, received = hvd.alltoall(array([hvd.rank()] * 3), splits)
    assert numbers(result) == ([0, 1, 1] if hvd.rank() == 0 else [0, 0, 1])
    assert received.dtype == np.int32
    assert numbers(received) == ([1, 2] if hvd.rank() == 0 else [2, 1])


_SCATTERING = [("op", hvd.Average), ("name", None), ("priority", 0), ("process_set", None)]
_SCATTERING += [("prescale_factor", 1.0), ("postscale_factor", 1.0)]


@row
def reducescatter():
    assert parameters(hvd.reducescatter)[:7] == ["tensor", *_SCATTERING]
    tensor = array([[1.0], [2.0], [3.0]]) * (hvd.rank() + 1)
    assert numbers(hvd.reducescatter(tensor, hvd.Sum)) == ([[3], [6]] if hvd.rank() == 0 else [[9]])
    assert numbers(hvd.reducescatter(tensor)) == ([[1.5], [3]] if hvd.rank() == 0 else [[4.5]])


@row
def grouped_reducescatter():
    assert parameters(hvd.grouped_reducescatter)[:7] == ["tensors", *_SCATTERING]
    first, second = hvd.grouped_reducescatter([array([1.0, 2.0]), array([3, 4], "int64")], op=hvd.Sum)
    assert (numbers(first), numbers(second)) == (([2], [6]) if hvd.rank() == 0 else ([4], [8]))


@row
def reducescatter_refuses_scalars():
    with mx.util.np_shape(True), pytest.raises(ValueError, match="dimension"):
        hvd.reducescatter(mx.nd.ones(()))


@row
def broadcast_parameters():
    assert parameters(hvd.broadcast_parameters) == ["params", ("root_rank", 0), ("prefix", None)]
    values = {"b": array([hvd.rank()]), "a": array([hvd.rank() + 5])}
    hvd.broadcast_parameters(values, 1, "model.")
    assert (numbers(values["a"]), numbers(values["b"])) == ([6], [1])


@row
def broadcast_parameters_takes_a_parameter_dict():
    net = mx.gluon.nn.Dense(1, in_units=2, weight_initializer=mx.init.Constant(hvd.rank() + 1))
    net.initialize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    assert numbers(net.weight.data()) == [[2, 2]]


@row
def broadcast_parameters_waits_for_deferred_initialization():
    net = mx.gluon.nn.Dense(1, weight_initializer=mx.init.Constant(hvd.rank() + 1))
    net.initialize()
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    assert numbers(net(array([[1.0, 1.0]]))) == [[4]]
    net.weight.set_data(array([[hvd.rank(), 0.0]]))
    assert numbers(net.weight.data()) == [[hvd.rank(), 0]], "it is broadcast once"


@row
def broadcast_parameters_refuses_everything_else():
    for wrong in (17, "text", {"a": 3}, [1, 2]):
        raises(ValueError, lambda wrong=wrong: hvd.broadcast_parameters(wrong))


@row
def broadcast_object():
    assert parameters(hvd.broadcast_object)[:3] == ["obj", ("root_rank", 0), ("name", None)]
    assert hvd.broadcast_object({"rank": hvd.rank()}, 1, "it") == {"rank": 1}


@row
def allgather_object():
    assert parameters(hvd.allgather_object)[:2] == ["obj", ("name", None)]
    assert hvd.allgather_object("x" * hvd.rank(), "them") == ["", "x"]


@row
def distributed_optimizer():
    wanted = ["optimizer", ("gradient_predivide_factor", 1.0), ("num_groups", 0), ("process_set", None)]
    assert parameters(hvd.DistributedOptimizer) == wanted
    plain = mx.optimizer.SGD(learning_rate=1.0, rescale_grad=0.5)
    optimizer = hvd.DistributedOptimizer(plain, gradient_predivide_factor=2.0)
    assert isinstance(optimizer, mx.optimizer.SGD)
    weight, gradient = array([10.0]), array([4.0 * hvd.rank()])
    optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))
    assert numbers(weight) == [10 - 0.5 * 2]


@row
def distributed_trainer():
    names = [each if isinstance(each, str) else each[0] for each in parameters(hvd.DistributedTrainer)]
    assert names[:3] == ["params", "optimizer", "optimizer_params"]
    assert names[3:] == ["compression", "gradient_predivide_factor", "prefix", "num_groups", "process_set"]
    net = mx.gluon.nn.Dense(1, in_units=1, use_bias=False, weight_initializer="ones")
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0}, prefix="mine.")
    with mx.autograd.record():
        loss = net(array([[hvd.rank()]])).sum()
    loss.backward()
    trainer.step(1)
    assert numbers(net.weight.data()) == [[0.5]]


@row
def barrier():
    start = time.monotonic()
    if hvd.rank() == 0:
        time.sleep(0.2)
    hvd.barrier()
    assert time.monotonic() - start > 0.15


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
def the_legacy_average_warns():
    with pytest.warns(DeprecationWarning, match="average"):
        assert numbers(hvd.allreduce(array([hvd.rank() * 2.0]), True)) == [1]
    with pytest.warns(DeprecationWarning, match="average"):
        assert numbers(hvd.allreduce(array([hvd.rank() * 2.0]), average=False)) == [2]


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
    for call in (lambda: hvd.allreduce(array([1.0])).asnumpy(), lambda: hvd.allgather(array([1.0])), hvd.rank):
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


def perform(name):
    next(function for function in ROWS if function.__name__ == name)()
    mx.nd.waitall()
    hvd.barrier()


@pytest.mark.parametrize("name", [function.__name__ for function in ROWS])
def test_row(name):
    world(2).run(perform, name)


def test_the_rows_are_counted(capsys):
    assert len({function.__name__ for function in ROWS}) == len(ROWS) >= 70
    with capsys.disabled():
        print(f"\n{len(ROWS)} rows of Horovod's surface are tested with MXNet", flush=True)
