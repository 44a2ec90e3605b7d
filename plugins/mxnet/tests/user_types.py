"""A user's program with what the plugin for MXNet has. Read by type checkers, see type_checks.py; never run."""

import farandole_mxnet as hvd
from farandole_mxnet._adapter import NDArray  # of MXNet; mypy, which does not read that, takes it for Any
from typing_extensions import assert_type


class Descent:
    """An optimizer: those of MXNet have no types."""


def reduced(one: NDArray, some: list[NDArray], among: hvd.ProcessSet) -> None:
    assert_type(hvd.allreduce(one, None, "one", 1, process_set=among), NDArray)
    assert_type(hvd.allreduce(tensor=one, op=hvd.Sum, compression=hvd.Compression.fp16), NDArray)
    assert_type(hvd.allreduce_(one, priority=2), NDArray)
    assert_type(hvd.grouped_allreduce(some, op=hvd.Max), list[NDArray])
    assert_type(hvd.grouped_allreduce_(tensors=some), list[NDArray])
    assert_type(hvd.reducescatter(one, hvd.Sum), NDArray)
    assert_type(hvd.grouped_reducescatter(some, prescale_factor=0.5), list[NDArray])


def moved(one: NDArray, some: list[NDArray]) -> None:
    assert_type(hvd.allgather(one), NDArray)
    assert_type(hvd.grouped_allgather(some, name="some"), list[NDArray])
    assert_type(hvd.alltoall(one), NDArray)
    assert_type(hvd.alltoall(one, [1, 2]), tuple[NDArray, NDArray])
    assert_type(hvd.broadcast(one, root_rank=0), NDArray)
    assert_type(hvd.broadcast_(one, 0, priority=1), NDArray)
    hvd.broadcast_parameters({"one": one}, root_rank=0, prefix="net.")


def train_whatever_ends(net: object) -> None:
    @hvd.elastic.run
    def train(state: hvd.elastic.MXNetState, steps: int) -> float:
        state.commit()
        return 0.5 * steps

    loader = hvd.elastic.DataLoader(range(8), 2, shuffle=True, num_workers=1, seed=1)
    loader.set_epoch(1)
    assert_type(train(hvd.elastic.MXNetState(net, loader=loader, epoch=0), steps=3), float)


def train(optimizer: Descent, parameters: dict[str, object]) -> None:
    assert_type(hvd.DistributedOptimizer(optimizer, num_groups=2), Descent)
    trainer = hvd.DistributedTrainer(parameters, "sgd", {"learning_rate": 0.1}, gradient_predivide_factor=2.0)
    assert_type(trainer, hvd.DistributedTrainer)
    with hvd.no_sync(trainer):
        pass
    assert_type(hvd.join(), int)
