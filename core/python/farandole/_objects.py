"""Collectives of any Python object, as pickled bytes. Needs no framework.

Nothing is unpickled that did not come over the job's authenticated connections.
"""

from __future__ import annotations

import ctypes
import io
import pickle
from typing import Any

from farandole import _world
from farandole._adapter import DType
from farandole._native import core
from farandole._ops import Kind, check_process_set, check_root


def barrier(process_set: object = None) -> None:
    """Block until every rank called it; Ctrl-C interrupts. Raises like every operation."""
    check_process_set(process_set)
    core.submit(Kind.BARRIER, [], None).wait()


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Rank `root_rank`'s object, on every rank; the others' `obj` is ignored (None will do).

    Args:
        obj: anything cloudpickle can pickle, of any size.
        root_rank: whose object all ranks get.
        name: as in every operation; unnamed calls are matched by their order.

    Returns:
        On the root `obj` itself, elsewhere a copy.
    """
    check_root(root_rank, _world.size())
    is_root = _world.rank() == root_rank
    payload = _pickled(obj) if is_root else bytearray()
    count = ctypes.c_int64(len(payload))
    _broadcast(count, 8, DType.INT64, (1,), root_rank, f"{name}.size" if name else "")
    if not is_root:
        payload = bytearray(count.value)
    memory = (ctypes.c_char * len(payload)).from_buffer(payload)
    _broadcast(memory, len(payload), DType.UINT8, (len(payload),), root_rank, name or "")
    return obj if is_root else pickle.loads(payload)


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """A list with every rank's object, in rank order, on every rank; objects of any kind and size."""
    payload = _pickled(obj)
    count = ctypes.c_int64(len(payload))
    sizes = _gather(count, DType.INT64, 1, f"{name}.size" if name else "").cast("q")
    memory = (ctypes.c_char * len(payload)).from_buffer(payload)
    joined = _gather(memory, DType.UINT8, len(payload), name or "")
    objects, start = [], 0
    for size in sizes:
        objects.append(pickle.loads(joined[start : start + size]))
        start += size
    return objects


def _pickled(obj: Any) -> bytearray:
    import cloudpickle

    stream = io.BytesIO()
    cloudpickle.dump(obj, stream)
    return bytearray(stream.getbuffer())


def _broadcast(memory: Any, nbytes: int, dtype: DType, shape: tuple[int, ...], root_rank: int, name: str) -> None:
    address = ctypes.addressof(memory) if nbytes else 0
    core.run(Kind.BROADCAST, address, address, dtype, shape, memory, name, 0, root_rank)


def _gather(memory: Any, dtype: DType, count: int, name: str) -> memoryview:
    handle = core.submit(Kind.ALLGATHER, [(ctypes.addressof(memory), 0, dtype, (count,))], memory, name)
    handle.wait()
    return memoryview(handle.outputs()[0])
