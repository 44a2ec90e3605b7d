"""Collectives for any Python object, as pickled bytes. Needs no framework.

Nothing is unpickled that did not come over the job's authenticated connections.
"""

from __future__ import annotations

import ctypes
import pickle
import struct
from typing import Any, TypeVar, cast

from farandole._api.adapter import DType
from farandole._api.calls import Parameters, plain, rooted
from farandole._api.earlier import await_earlier
from farandole._api.ops import Kind
from farandole._api.process_sets import ProcessSet
from farandole._api.refusals import CallGuard
from farandole._runtime.native import core
from farandole._start import world

S = TypeVar("S")


def barrier(process_set: ProcessSet | None = None) -> None:
    """Block until every rank of the set, by default every rank, called it; Ctrl-C interrupts.

    Raises like every operation.

    Example:
        >>> hvd.barrier()
    """
    parameters = plain(None, process_set)
    await_earlier()
    core.submit(Kind.BARRIER, [], None, parameters).wait()


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and block until every rank of the world said so; Ctrl-C interrupts.

    Until then the operations of the others go on: this rank counts with zeros in allreduce, with no rows in allgather
    and alltoall, and takes no rows of a reducescatter. An average is still divided by the size of the set. A broadcast
    from this rank is an error. Call nothing else meanwhile, in no other thread either.

    Args:
        device: not needed; accepted because Horovod does.

    Returns:
        The rank that was the last to join, the same on all ranks: the one to broadcast the final parameters from.

    Raises:
        ValueError: this rank has joined already, in another thread.

    Example:
        >>> if hvd.rank() == 0:  # this rank has one batch more
        ...     total = hvd.allreduce(np.ones(2), op=hvd.Sum)
        >>> hvd.join() in (0, 1)
        True
    """
    await_earlier()
    handle = core.submit(Kind.JOIN, [], None)
    handle.wait()
    world.note_join()
    (last,) = struct.unpack("q", memoryview(handle.outputs()[0]))
    return int(last)


def broadcast_object(
    obj: S | None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet | None = None
) -> S:
    """Send rank `root_rank`'s object to every rank of the set; the other ranks' `obj` is ignored, and may be None.

    Args:
        obj: anything cloudpickle can pickle, of any size.
        root_rank: whose object all ranks get; a rank of the world, in the set.
        name: as in every operation; unnamed calls are matched by their order.
        process_set: as in every operation.

    Returns:
        On the root `obj` itself, elsewhere a copy.

    Example:
        >>> hvd.broadcast_object({"seed": 7} if hvd.rank() == 0 else None)
        {'seed': 7}
    """
    of_size = rooted(root_rank, _name_of_size(name), process_set)
    is_root = world.rank() == root_rank
    with CallGuard(of_size[0], of_size[5]):
        payload = pickled(obj) if is_root else bytearray()
    count = ctypes.c_int64(len(payload))
    _broadcast(count, 8, DType.INT64, (1,), of_size)
    parameters = (name or "", *of_size[1:])
    with CallGuard(name, parameters[5]):
        if not is_root:
            payload = bytearray(count.value)
    memory = (ctypes.c_char * len(payload)).from_buffer(payload)
    _broadcast(memory, len(payload), DType.UINT8, (len(payload),), parameters)
    return cast(S, obj if is_root else pickle.loads(payload))


def allgather_object(obj: S, name: str | None = None, process_set: ProcessSet | None = None) -> list[S]:
    """Return a list with every rank's object, in rank order, on every rank of the set. Objects may have any size.

    Example:
        >>> hvd.allgather_object(f"rank {hvd.rank()}")
        ['rank 0', 'rank 1']
    """
    of_size = plain(_name_of_size(name), process_set)
    with CallGuard(of_size[0], of_size[5]):
        payload = pickled(obj)
    count = ctypes.c_int64(len(payload))
    sizes = _gather(count, DType.INT64, 1, of_size).cast("q")
    memory = (ctypes.c_char * len(payload)).from_buffer(payload)
    joined = _gather(memory, DType.UINT8, len(payload), (name or "", *of_size[1:]))
    objects: list[S] = []
    start = 0
    for size in sizes:
        objects.append(pickle.loads(joined[start : start + size]))
        start += size
    return objects


def _name_of_size(name: str | None) -> str:
    """Return the name of the first operation, which sends the size. A rank that cannot make the call refuses it."""
    return f"{name}.size" if name else ""


def pickled(obj: object) -> bytearray:
    """Return the object pickled for other ranks."""
    from farandole._runtime import pickling  # cloudpickle, which imports of farandole do without

    return bytearray(pickling.dumps(obj))


def _broadcast(memory: Any, nbytes: int, dtype: DType, shape: tuple[int, ...], parameters: Parameters) -> None:
    address = ctypes.addressof(memory) if nbytes else 0
    if not parameters[0]:
        await_earlier()
    core.submit(Kind.BROADCAST, [(address, address, dtype, shape)], memory, parameters).wait()


def _gather(memory: Any, dtype: DType, count: int, parameters: Parameters) -> memoryview:
    if not parameters[0]:
        await_earlier()
    handle = core.submit(Kind.ALLGATHER, [(ctypes.addressof(memory), 0, dtype, (count,))], memory, parameters)
    handle.wait()
    return memoryview(handle.outputs()[0])
