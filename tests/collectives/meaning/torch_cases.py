"""PyTorch's additions to a case: layouts, gradients, compression, sparse tensors, and the modes of its autograd.

The windows are those of `windows`, so that names, sets, order and joins are as for NumPy.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
import torch_tensors
from cases import REDUCING, Case, Key
from meanings import DTYPES, FLOATS, Expected, reduction
from operations import OPERATIONS
from windows import Window, draw_window

_LINEAR = ("Sum", "Average")
_WITH_GRADIENT = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
_COMPRESSIBLE = ("allreduce", "reducescatter")


@dataclass
class TorchCase(Case):
    """A call of farandole_torch, and of backward after it."""

    in_order: bool = False  # the cases of its window are submitted, awaited and differentiated one by one
    differentiates: bool = False  # the tensors require a gradient, and backward is called
    weighted: bool = True  # the loss weighs each element by itself, else all alike: then the gradient has strides 0
    sends: str = ""  # the dtype that travels, where it is compressed
    layouts: list[list[str]] = field(default_factory=list)  # [tensor][member]
    repeats: bool = False  # all rows of a tensor are alike, so that it can be expanded
    splits_as: str = "list"  # or an integer dtype
    mode: str = "grad"  # or "no_grad", "inference": in which it is called
    leaves: bool = False  # the tensors require a gradient, also where none is asked for
    sparse_dims: int = 0
    doubled: bool = False

    def data(self, tensor: int, member: int) -> np.ndarray:
        array = super().data(tensor, member)
        if self.sparse_dims:
            draw = np.random.default_rng([self.key.seed, self.key.number, self.position, tensor, member])
            array = np.where(draw.random(array.shape) < 0.3, array, array.dtype.type(0))
        if self.repeats and array.ndim and len(array):
            array = np.repeat(array[:1], len(array), axis=0)
        return array

    def inputs(self, tensor: int) -> list[np.ndarray]:
        return [self.sent(array) for array in super().inputs(tensor)]

    def sent(self, array: np.ndarray) -> np.ndarray:
        """As it travels."""
        return array.astype(np.float32).astype(DTYPES[self.sends]) if self.sends else array

    def splits_of(self, member: int) -> Any:
        splits = super().splits_of(member)
        return splits if self.splits_as == "list" else torch.tensor(splits, dtype=getattr(torch, self.splits_as))

    def expect(self, tensor: int, member: int) -> Expected:
        """The result, of the dtype that was given."""
        if self.operation == "sparse":
            want = reduction(self.op, self.inputs(tensor), len(self.members), 1.0, 1.0)
        else:
            want = OPERATIONS[self.operation].expect(self, tensor, member)
        return Expected(want.values.astype(DTYPES[self.dtype]), None) if want.slack is None and self.sends else want

    def weights(self, tensor: int, member: int) -> np.ndarray:
        """The gradient that a member's backward pass starts with: its loss multiplies the result by it."""
        shape, kind = self.expect(tensor, member).values.shape, DTYPES[self.dtype]
        if self.members[member] in self.joined:
            return np.zeros(shape, kind)
        if not self.weighted:
            return np.full(shape, 0.5 * (member + 1), kind)
        draw = np.random.default_rng([self.key.seed, self.key.number, self.position, 99, tensor, member])
        return draw.standard_normal(shape).astype(kind)

    def expect_gradient(self, tensor: int, member: int) -> Expected:
        """Of a member's tensor, from the weights of all."""
        return _GRADIENTS[self.operation](self, tensor, member, [
            self.sent(self.weights(tensor, each)) for each in range(len(self.members))
        ])  # fmt: skip


def _of_allreduce(case: TorchCase, tensor: int, member: int, weights: list[np.ndarray]) -> Expected:
    return reduction(case.op, weights, len(case.members), case.prescale, case.postscale)


def _of_allgather(case: TorchCase, tensor: int, member: int, weights: list[np.ndarray]) -> Expected:
    whole = reduction("Average", weights, len(case.members), 1.0, 1.0)
    start = sum(case.shape(tensor, each)[0] for each in range(member))
    mine = slice(start, start + case.shape(tensor, member)[0])
    assert whole.slack is not None
    return Expected(whole.values[mine], whole.slack[mine])


def _of_broadcast(case: TorchCase, tensor: int, member: int, weights: list[np.ndarray]) -> Expected:
    if case.members[member] != case.root:
        return Expected(np.zeros_like(weights[0]))
    return reduction("Average", weights, len(case.members), 1.0, 1.0)


def _of_alltoall(case: TorchCase, tensor: int, member: int, weights: list[np.ndarray]) -> Expected:
    """Rows come back from where they went; those of a rank that has joined are lost."""
    sent = [_rows_sent(case, tensor, each) for each in range(len(case.members))]
    parts = []
    for receiver, whole in enumerate(weights):
        start = sum(rows[receiver] for rows in sent[:member])
        parts.append(whole[start : start + sent[member][receiver]])
    return Expected(np.concatenate(parts))


def _rows_sent(case: TorchCase, tensor: int, member: int) -> list[int]:
    rows, count = case.shape(tensor, member)[0], len(case.members)
    return case.splits[member] if case.splits and rows else [rows // count] * count


def _of_reducescatter(case: TorchCase, tensor: int, member: int, weights: list[np.ndarray]) -> Expected:
    """The convention is Horovod's: each rank's rows as they are for an average, times the ranks for a sum."""
    factor = case.prescale * case.postscale * (len(case.members) if case.op == "Sum" else 1)
    values = np.concatenate(weights).astype(np.float64) * factor
    info = torch.finfo(getattr(torch, case.sends or case.dtype))
    return Expected(values, abs(values) * (2 * float(info.eps)) + float(info.smallest_normal) * float(info.eps))


_GRADIENTS = {
    "allreduce": _of_allreduce,
    "allgather": _of_allgather,
    "broadcast": _of_broadcast,
    "alltoall": _of_alltoall,
    "reducescatter": _of_reducescatter,
}


def draw_torch_window(key: Key) -> Window:
    """The same on every rank."""
    plain = draw_window(key)
    draw = random.Random(repr((tuple(key), "torch")))
    in_order = draw.random() < (0.3 if plain.stops is None else 0.6)
    cases = [_draw_case(case, draw, in_order, plain.stops is not None) for case in plain.cases]
    return Window(list(cases), plain.stops)


def _draw_case(plain: Case, draw: random.Random, in_order: bool, ends_with_join: bool) -> TorchCase:
    case = TorchCase(**{each.name: getattr(plain, each.name) for each in fields(plain)}, in_order=in_order)
    if case.operation == "allreduce" and not case.grouped and draw.random() < 0.08:
        _make_sparse(case, draw)
    if case.operation in ("allreduce", "broadcast") and not case.sparse_dims and draw.random() < 0.15:
        case.shapes[0] = (draw.randint(0, 3), 3, draw.randint(1, 5), 4)
    is_float = case.dtype in FLOATS
    is_linear = case.operation not in REDUCING or case.op in _LINEAR
    takes_compression = case.operation in _COMPRESSIBLE and case.blocking and not case.in_place
    if takes_compression and case.dtype in ("float32", "float64") and case.op != "Adasum":
        case.sends = draw.choice(["", "", "float16", "bfloat16"])
    # A gradient waits for the others, so who joins must be done with its own before.
    if is_float and is_linear and case.operation in _WITH_GRADIENT and not case.in_place:
        case.differentiates = draw.random() < 0.7 and (in_order or not ends_with_join)
    case.weighted = draw.random() < 0.7
    case.repeats = draw.random() < 0.15 and not case.in_place
    usable = [each for each in torch_tensors.LAYOUTS if case.repeats or each != "expanded"]
    case.layouts = [[draw.choice(usable) for _ in case.members] for _ in case.shapes]
    case.splits_as = draw.choice(["list", "int32", "int64"])
    case.leaves = is_float and draw.random() < 0.3 and not case.sparse_dims
    if not case.differentiates:
        case.mode = draw.choice(["no_grad", "inference"] if case.leaves else ["grad", "no_grad", "inference"])
    return case


def _make_sparse(case: TorchCase, draw: random.Random) -> None:
    case.operation, case.in_place, case.prescale, case.postscale = "sparse", False, 1.0, 1.0
    case.dtype = draw.choice(["float32", "float64", "float16", "bfloat16", "int32", "int64"])
    case.op = draw.choice(_LINEAR) if case.dtype in FLOATS else "Sum"
    case.shapes = [tuple(draw.randint(0 if k == 0 else 1, 6) for k in range(draw.randint(1, 3)))]
    case.sparse_dims, case.doubled = draw.randint(1, len(case.shapes[0])), draw.random() < 0.4
