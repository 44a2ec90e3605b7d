"""A user's program with every name of a module `keras`. Read by type checkers, see type_checks.py; never run."""

import farandole.keras as hvd
import numpy as np
from farandole.keras import Tensor
from typing_extensions import assert_type


class Descent:
    """An optimizer of the user's."""


def optimize(optimizer: Descent) -> None:
    assert_type(hvd.DistributedOptimizer(optimizer), Descent)
    distributed = hvd.DistributedOptimizer(
        optimizer, "first", compression=hvd.Compression.fp16, op=hvd.Sum, backward_passes_per_step=2, groups=3
    )
    assert_type(distributed, Descent)
    assert_type(hvd.PartialDistributedOptimizer(optimizer, local_layers=[]), Descent)
    with hvd.no_sync(distributed):
        pass


def values(tensor: Tensor, array: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    assert_type(hvd.allreduce(tensor, "tensor", op=hvd.Max, compression=hvd.Compression.none), Tensor)
    assert_type(hvd.allgather(tensor), Tensor)
    assert_type(hvd.broadcast(tensor, 0, name="tensor"), Tensor)
    assert_type(hvd.reducescatter(tensor, op=hvd.Sum), Tensor)
    assert_type(float(hvd.allreduce(0.5)), float)
    assert_type(hvd.allgather([1, 2]).nbytes, int)
    assert_type(hvd.broadcast(array, root_rank=0).ndim, int)
    assert_type(hvd.reducescatter(array).size, int)


def callbacks() -> list[object]:
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=3, verbose=1)
    assert_type(warmup, hvd.callbacks.LearningRateWarmupCallback)
    return [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1 / (1 + epoch), start_epoch=3),
        hvd.callbacks.BestModelCheckpoint("loss", save_weights_only=True, filepath="best.weights.h5"),
        hvd.callbacks.StepScalarsCallback(every=10),
        warmup,
    ]


def train_whatever_ends(path: str) -> None:
    model = hvd.load_model(path, compression=hvd.Compression.bf16)

    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState, epochs: int) -> float:
        callbacks: list[object] = [
            hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
        ]
        return 0.5 * epochs * len(callbacks)

    assert_type(train(hvd.elastic.KerasState(model, epoch=0), epochs=3), float)
