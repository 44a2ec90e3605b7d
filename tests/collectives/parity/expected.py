"""The results that calls must give, bit by bit, computed by one process from the numbers of all ranks."""

from __future__ import annotations

import numpy as np
import order
from calls import Call
from meanings import DTYPES, FLOATS


def expected(call: Call, rank: int) -> list[np.ndarray] | None:
    """The rank's results, in the order of tensors; None where no formula has all bits, as of a float's product."""
    tensors = range(len(call.shapes))
    if not call.reduces:
        return [_moved(call, tensor, rank) for tensor in tensors] + _received(call, rank)
    if call.op in ("Product", "Min", "Max") and call.dtype in FLOATS and (call.op == "Product" or call.is_scaled):
        return None
    return [_reduced(call, tensor, rank) for tensor in tensors]


def _moved(call: Call, tensor: int, rank: int) -> np.ndarray:
    if call.operation == "broadcast":
        return call.data(tensor, call.root)
    parts = [call.data(tensor, each) for each in call.members]
    if call.operation == "alltoall":
        place = call.members.index(rank)
        parts = [_part(rows, call.splits(each), place) for rows, each in zip(parts, call.members, strict=True)]
    return np.concatenate(parts)


def _part(rows: np.ndarray, splits: list[int], place: int) -> np.ndarray:
    return rows[sum(splits[:place]) :][: splits[place]]


def _received(call: Call, rank: int) -> list[np.ndarray]:
    if call.operation != "alltoall":
        return []
    return [np.array([call.splits(each)[call.members.index(rank)] for each in call.members])]


def _reduced(call: Call, tensor: int, rank: int) -> np.ndarray:
    inputs = [_sent(call, call.data(tensor, each)) for each in call.members]
    shape, flat = inputs[0].shape, [each.reshape(-1) for each in inputs]
    if call.op == "Adasum":
        result = order.adasum_bits(flat, call.prescale, call.postscale)
    else:
        result = order.bits(call.op, flat, order.groups_of(len(flat), ()), call.prescale, call.postscale)
    result = result.astype(DTYPES[call.dtype]).reshape(shape)
    return np.array_split(result, len(inputs))[call.members.index(rank)] if "scatter" in call.operation else result


def _sent(call: Call, data: np.ndarray) -> np.ndarray:
    """Through float32, as every framework narrows a double."""
    narrow = {"": call.dtype, "fp16": "float16", "bf16": "bfloat16"}[call.compression]
    return data if narrow == call.dtype else data.astype(np.float32).astype(DTYPES[narrow])
