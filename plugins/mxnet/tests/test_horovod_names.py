"""One test for each name that Horovod's users know: its arguments in their order, and what it does."""

import time

import farandole
import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from farandole.testing import world
from rows import array, finished, numbers, parameters, raises

pytestmark = pytest.mark.timeout(120)

ROWS = []


def row(function):
    ROWS.append(finished(function))
    return function


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
def broadcast_parameters_may_come_twice_before_deferred_initialization():
    net = mx.gluon.nn.Dense(1, weight_initializer=mx.init.Constant(hvd.rank() + 1))
    net.initialize()
    for root_rank in (0, 1):
        hvd.broadcast_parameters(net.collect_params(), root_rank)
    assert numbers(net(array([[1.0, 1.0]]))) in ([[2]], [[4]])
    first, second = hvd.allgather_object(numbers(net.weight.data()))
    assert first == second


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
def distributed_trainer_of_a_distributed_optimizer():
    net = mx.gluon.nn.Dense(1, in_units=1, use_bias=False, weight_initializer="ones")
    net.initialize()
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
    with pytest.warns(UserWarning, match="give it the optimizer as it was"):
        trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
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


@pytest.mark.parametrize("perform", ROWS, ids=lambda perform: perform.__name__)
def test_row(perform):
    world(2).run(perform)
