"""A user's program with what the plugin for TensorFlow has. Read by type checkers, see type_checks.py; never run."""

import farandole_tensorflow as hvd
import tensorflow as tf
from typing_extensions import assert_type


def reduced(one: tf.Tensor, some: list[tf.Tensor], rows: tf.IndexedSlices, weights: tf.Variable) -> None:
    assert_type(hvd.allreduce(one, op=hvd.Sum, compression=hvd.Compression.fp16), tf.Tensor)
    assert_type(hvd.allreduce(weights, name="weights"), tf.Tensor)
    assert_type(hvd.allreduce(tensor=rows), tf.IndexedSlices)
    assert_type(hvd.grouped_allreduce(some, prescale_factor=0.5), list[tf.Tensor])
    assert_type(hvd.reducescatter(one, op=hvd.Sum), tf.Tensor)
    assert_type(hvd.grouped_reducescatter(tensors=some), list[tf.Tensor])


def moved(one: tf.Tensor, some: list[tf.Tensor]) -> None:
    assert_type(hvd.allgather(one, name="one"), tf.Tensor)
    assert_type(hvd.grouped_allgather(some), list[tf.Tensor])
    assert_type(hvd.alltoall(one), tf.Tensor)
    assert_type(hvd.alltoall(one, [1, 2]), tuple[tf.Tensor, tf.Tensor])
    assert_type(hvd.broadcast(one, root_rank=0), tf.Tensor)


def spread(variables: list[tf.Variable]) -> None:
    assert_type(hvd.broadcast_(variables, 0), list[tf.Variable] | list[tf.Operation])
    assert_type(hvd.broadcast_variables(variables, root_rank=0), tf.Operation | None)
    assert_type(hvd.broadcast_global_variables(0), tf.Operation | None)
    hvd.BroadcastGlobalVariablesHook(0)
    assert_type(hvd.broadcast_object({"step": 1}, 0, None, "step"), dict[str, int])
    assert_type(hvd.broadcast_object_fn(0)("text"), str)
    assert_type(hvd.allgather_object(1, session=None), list[int])
    assert_type(hvd.barrier(name="barrier"), tf.Operation | None)
    assert_type(hvd.join(), int | tf.Tensor)


def place() -> list[tf.Tensor]:
    hvd.use_xla()
    return [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op(0)]


def train(tape: tf.GradientTape, loss: tf.Tensor, weights: tf.Variable) -> None:
    distributed = hvd.DistributedGradientTape(tape, op=hvd.Average, groups=[[weights]])
    distributed.register_local_source(weights)
    distributed.gradient(loss, [weights])
    partial = hvd.PartialDistributedGradientTape(tape, local_layers=[hvd.SyncBatchNormalization(name="batch")])
    partial.watch(loss)


def train_whatever_ends(variables: list[tf.Variable]) -> None:
    @hvd.elastic.run
    def train(state: hvd.elastic.TensorFlowState, steps: int) -> float:
        state.commit()
        return 0.5 * steps

    data = hvd.elastic.Dataset(tf.data.Dataset.range(8), 2, shuffle=True, seed=1, transform=lambda batches: batches)
    data.set_epoch(1)
    assert_type(data.is_common, bool)
    assert_type(train(hvd.elastic.TensorFlowState(variables, data=data, epoch=0), steps=3), float)


def optimize(optimizer: tf.keras.optimizers.legacy.Adam) -> None:
    assert_type(hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2), tf.keras.optimizers.legacy.Adam)
    with hvd.no_sync(optimizer):  # refused when it runs
        pass
