"""Reduction of torch's sparse COO tensors, such as the gradient of an embedding with sparse=True."""

from __future__ import annotations

from collections.abc import Callable

import torch
from farandole import ArgumentError, Average, Handle, ProcessSet, ReduceOp
from farandole.plugin import CallGuard, plain

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._autograd import differentiates


def sparse_allreduce_async(
    tensor: Tensor, name: str | None = None, op: ReduceOp = Average, process_set: ProcessSet | None = None
) -> Callable[[], Tensor]:
    """Begin to combine sparse tensors of one shape; returns at once.

    Args:
        tensor: of layout torch.sparse_coo, coalesced or not; how many elements are there may differ between ranks.
        name: matches the ranks' calls whatever their order; unnamed calls are matched by their order.
        op: Average (default; floats only) or Sum.
        process_set: among which ranks; by default all.

    Returns:
        A function that blocks until the operation is complete and returns a new sparse tensor, not coalesced.

    Raises:
        ValueError: not a sparse COO tensor, another reduction, or a tensor that requires a gradient, which the result
            would lack.

    Example:
        >>> mine = torch.sparse_coo_tensor([[hvd.rank()]], [1.0], (3,))  # rank 0 has element 0, rank 1 has element 1
        >>> wait = hvd.sparse_allreduce_async(mine, op=hvd.Sum)
        >>> wait().to_dense()
        tensor([1., 1., 0.])
    """
    with CallGuard(name, plain(name, process_set)[5]):
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
            raise ArgumentError(
                "sparse_allreduce_async takes a tensor of layout torch.sparse_coo; use allreduce for dense ones"
            )
        if differentiates(tensor):
            raise ArgumentError(
                "sparse_allreduce_async has no gradient, and its tensor requires one: give tensor.detach(), or call it "
                "under torch.no_grad()"
            )
    handle, _ = begin(tensor, name, op, process_set)
    return handle.wait


def begin(tensor: Tensor, name: str | None, op: ReduceOp, process_set: ProcessSet | None) -> tuple[Handle[Tensor], int]:
    """The same as a handle, and how many bytes this rank sends."""
    summed = tensor.detach().coalesce()  # what the rank can add up itself need not travel
    shape, indices, values = tensor.shape, summed.indices().t().contiguous(), summed.values()
    handle = collectives.sparse_allreduce_async((indices, values), op, name, process_set)

    def assembled(both: tuple[Tensor, Tensor]) -> Tensor:
        # As the user has set it, but explicitly: else torch warns that nothing is checked.
        checks = torch.sparse.check_sparse_tensor_invariants.is_enabled()
        return torch.sparse_coo_tensor(both[0].t(), both[1], shape, check_invariants=checks)

    return handle.map(assembled), indices.nbytes + values.nbytes
