"""A user's program with every operation of `Collectives`. Read by type checkers, see type_checks.py; never run."""

from collections.abc import Callable

import farandole.numpy as hvd
from farandole.numpy import Array as Tensor
from typing_extensions import assert_type


def reduced(one: Tensor, some: list[Tensor], among: hvd.ProcessSet) -> None:
    assert_type(hvd.allreduce(one), Tensor)
    assert_type(hvd.allreduce(one, compression=hvd.Compression.fp16), Tensor)
    assert_type(hvd.allreduce(tensor=one, name="one", op=hvd.Sum, prescale_factor=0.5, process_set=among), Tensor)
    assert_type(hvd.allreduce_(one, False, "one"), Tensor)
    assert_type(hvd.allreduce_async(one, op=hvd.Max), hvd.Handle[Tensor])
    assert_type(hvd.allreduce_async_(tensor=one, postscale_factor=2.0), hvd.Handle[Tensor])
    assert_type(hvd.grouped_allreduce(some, compression=hvd.Compression.none), list[Tensor])
    assert_type(hvd.grouped_allreduce_(tensors=some, op=hvd.Sum), list[Tensor])
    assert_type(hvd.grouped_allreduce_async(some), hvd.Handle[list[Tensor]])
    assert_type(hvd.grouped_allreduce_async_(some, name="some"), hvd.Handle[list[Tensor]])
    assert_type(hvd.synchronize(hvd.allreduce_async(one)), Tensor)
    assert_type(hvd.grouped_allreduce_async(some).wait(), list[Tensor])


def scattered(one: Tensor, some: list[Tensor]) -> None:
    assert_type(hvd.reducescatter(one, compression=hvd.Compression.bf16), Tensor)
    assert_type(hvd.reducescatter_async(one, "one", hvd.Sum), hvd.Handle[Tensor])
    assert_type(hvd.grouped_reducescatter(some, op=hvd.Sum), list[Tensor])
    assert_type(hvd.grouped_reducescatter_async(some), hvd.Handle[list[Tensor]])


def gathered(one: Tensor, some: list[Tensor]) -> None:
    assert_type(hvd.allgather(one, name="one"), Tensor)
    assert_type(hvd.allgather_async(one), hvd.Handle[Tensor])
    assert_type(hvd.grouped_allgather(some), list[Tensor])
    assert_type(hvd.grouped_allgather_async(some), hvd.Handle[list[Tensor]])
    assert_type(hvd.alltoall(one), Tensor)
    assert_type(hvd.alltoall(one, [1, 2]), tuple[Tensor, Tensor])
    assert_type(hvd.alltoall(one, splits=one), tuple[Tensor, Tensor])
    assert_type(hvd.alltoall_async(one), hvd.Handle[Tensor])
    assert_type(hvd.alltoall_async(one, [1, 2]), hvd.Handle[tuple[Tensor, Tensor]])


def spread(one: Tensor) -> None:
    assert_type(hvd.broadcast(one, root_rank=0), Tensor)
    assert_type(hvd.broadcast_(one, 0, "one"), Tensor)
    assert_type(hvd.broadcast_async(one, 0, name="one"), hvd.Handle[Tensor])
    assert_type(hvd.broadcast_async_(tensor=one, root_rank=0), hvd.Handle[Tensor])
    hvd.broadcast_parameters({"one": one}, root_rank=0)


def functions() -> Callable[[Tensor], Tensor]:
    return hvd.allreduce_
