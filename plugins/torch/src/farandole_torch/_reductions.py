"""The reductions of a group.

The core reduces by most of c10d's operations. By the others, such as BXOR, each rank reduces what it has gathered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from farandole import ArgumentError, Average, Handle, Max, Min, Product, ReduceOp, Sum

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._group import Group
from farandole_torch._moves import fill
from farandole_torch._overlap import pays
from farandole_torch._private import is_called_by_backward, is_profiler_on, when_backward_is_over
from farandole_torch._sparse import begin
from farandole_torch._work import Work

_SUM = dist.ReduceOp.SUM
BLOCKING_SUM = (("asyncOp", False), ("reduceOp", _SUM))  # in the options of an allreduce
_OPS = {"SUM": Sum, "AVG": Average, "MIN": Min, "MAX": Max, "PRODUCT": Product, "PREMUL_SUM": Sum}
_BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}

Local = Callable[[Tensor], Tensor]  # of the ranks' values, in rows


class Reduction(NamedTuple):
    """How to combine the ranks' values."""

    op: ReduceOp = Sum
    factor: float = 1.0  # of each value, before
    local: Local | None = None  # instead of `op`, which the core has not

    def of(self, tensor: Tensor) -> Local | None:
        """The function that reduces such tensors here; None: the core does."""
        if self.op is Product and tensor.is_complex():
            return partial(torch.prod, dim=0)
        if self.local and (tensor.is_floating_point() or tensor.is_complex()):
            raise ArgumentError(f"bitwise reductions are of integers and bool, not of {tensor.dtype}")
        return self.local


_PLAIN_SUM = Reduction()


def reduction_of(options: Any) -> Reduction:
    """What the options of a call ask for."""
    if options is None or options.reduceOp == _SUM:
        return _PLAIN_SUM
    kind, factor = options.reduceOp.__getstate__()
    if function := _BITWISE.get(kind.name):
        return Reduction(local=lambda rows: reduce(function, rows.unbind()))
    if kind.name not in _OPS:
        raise ArgumentError(f"the backend farandole cannot reduce by {kind.name}")
    return Reduction(_OPS[kind.name], 1.0 if factor is None else float(factor))


class Deferred(Work):
    """Sums that begin when backward is over, or when somebody waits for them."""

    def __init__(self, group: Reductions, tensors: list[Tensor], reduction: Reduction) -> None:
        super().__init__(group, [], tensors, title="all_reduce")
        self._begin, self._reduction = group.begin_all, reduction

    def begin(self) -> bool:
        """Called once, in the order of the calls. Returns whether somebody must complete the future."""
        self.handles = self._begin(self._result, self._reduction)
        self._show("all_reduce", self._result)
        return self._future is not None

    def wait(self, timeout: Any = None) -> bool:
        self._begin_all()
        return super().wait(timeout)

    def is_completed(self) -> bool:
        self._begin_all()
        return super().is_completed()

    def _begin_all(self) -> None:
        for work in self._group.begin_deferred():
            self._group.complete_later(work)

    def _is_over(self) -> bool:
        return bool(self.handles) and super()._is_over()

    def _have_future_completed(self, by_engine: bool) -> None:
        if self.handles:  # it has begun; else who begins it does this
            super()._have_future_completed(by_engine)


class Reductions(Group):
    """all_reduce, reduce and reduce_scatter in all their forms."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self._defers = self.getSize() > 1 and self._all_defer()  # sums that backward asks for
        self._deferred: list[Deferred] = []

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Work | None:
        """None: it is over. PyTorch that says `asyncOp` takes that, and to make and wait for a Work takes 1 us."""
        tensor, reduction = tensors[0], reduction_of(opts)
        is_async = getattr(opts, "asyncOp", True) or len(tensors) != 1 or is_profiler_on()
        if is_async or tensor.is_sparse or reduction.of(tensor):
            if self._defers and tensor.is_cpu and is_called_by_backward(sys._getframe()):
                return self._defer(tensors, reduction)
            self._in_order()
            title = "sparse_all_reduce" if tensor.is_sparse else "all_reduce"
            return Work(self, self.begin_all(tensors, reduction), tensors, title=title, inputs=tensors)
        op, factor, _ = reduction
        collectives.allreduce_(tensor, op=op, prescale_factor=factor, process_set=self._in_order())
        return None  # the caller would wait next

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        reduction = reduction_of(opts)
        self._in_order()
        if any(map(reduction.of, tensors)):
            handles: list[Handle[Any]] = self.begin_all(tensors, reduction)
        else:
            op, factor, _ = reduction
            set_ = self._process_set
            handles = [collectives.grouped_allreduce_async_(tensors, op=op, prescale_factor=factor, process_set=set_)]
        return Work(self, handles, tensors, title="all_reduce", inputs=tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Work:
        """As an all_reduce, whose result the others drop."""
        reduction = reduction_of(opts)
        process_set = self._in_order()
        if reduction.of(tensors[0]):
            handle = self._begin_here(tensors[0], reduction)
        else:
            op, factor, _ = reduction
            handle = collectives.allreduce_async(tensors[0], op=op, prescale_factor=factor, process_set=process_set)
        is_root = opts.rootRank == self._rank
        handle = handle.map(lambda sums: fill(tensors[:1], [sums]) if is_root else None)
        return Work(self, [handle], tensors, title="reduce", inputs=tensors)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        rows = [each.reshape(self.getSize(), -1) for each in inputs]
        return self._scattered(rows, outputs, inputs, opts)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Work:
        parts = [each.reshape(-1) for each in inputs[0]]
        if len({each.numel() for each in parts}) == 1:
            return self._scattered([torch.stack(parts)], outputs, inputs[0], opts)
        flat, reduction = torch.cat(parts), reduction_of(opts)
        start = sum(each.numel() for each in parts[: self._rank])
        mine = slice(start, start + outputs[0].numel())
        self._in_order()
        handle = self._begin(flat, reduction).map(lambda _: fill(outputs, [flat[mine]]))
        return Work(self, [handle], outputs, title="reduce_scatter", inputs=inputs[0])

    def _scattered(self, rows: list[Tensor], outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        """`rows`: of each input what each rank gets."""
        reduction = reduction_of(opts)
        process_set = self._in_order()
        rows = [self.by_position(each) for each in rows]
        handles: list[Handle[Any]]
        if any(map(reduction.of, rows)):
            handles = [self._begin_scatter_here(*each, reduction) for each in zip(rows, outputs, strict=True)]
        else:
            op, factor, _ = reduction
            handle = collectives.grouped_reducescatter_async(
                rows, op=op, prescale_factor=factor, process_set=process_set
            )
            handles = [handle.map(lambda parts: fill(outputs, parts))]
        return Work(self, handles, outputs, title="reduce_scatter", inputs=inputs)

    # ---- REQUIRES, in all of these: it is in order

    def begin_all(self, tensors: Sequence[Tensor], reduction: Reduction) -> list[Handle[Any]]:
        """Begin to reduce tensors in place."""
        return [self._begin(each, reduction) for each in tensors]

    def _begin(self, tensor: Tensor, reduction: Reduction) -> Handle[Any]:
        """Dense or sparse."""
        op, factor, _ = reduction
        if tensor.layout is torch.sparse_coo:
            if reduction.local or factor != 1.0:
                raise ArgumentError("the backend farandole reduces sparse tensors by SUM and AVG only")
            handle, _ = begin(tensor, None, op, self._process_set)
            return handle.map(lambda result: fill([tensor], [result.coalesce()]))
        if reduction.of(tensor):
            return self._begin_here(tensor, reduction).map(lambda result: fill([tensor], [result]))
        return collectives.allreduce_async_(tensor, op=op, prescale_factor=factor, process_set=self._process_set)

    def _begin_here(self, tensor: Tensor, reduction: Reduction) -> Handle[Tensor]:
        function = reduction.of(tensor)
        assert function is not None, "what the core reduces does not come here"
        rows = tensor.reshape(1, -1)
        return collectives.allgather_async(rows, process_set=self._process_set).map(function)

    def _begin_scatter_here(self, rows: Tensor, output: Tensor, reduction: Reduction) -> Handle[None]:
        function = reduction.of(rows)
        assert function is not None, "all tensors of a call are of one kind"
        handle = collectives.alltoall_async(rows, [1] * self.getSize(), process_set=self._process_set)
        return handle.map(lambda both: fill([output], [function(both[0])]))

    # ---- sums that backward asks for

    def _all_defer(self) -> bool:
        """Ask all ranks, since the order of the calls must be one on all of them.

        Only sums of DistributedDataParallel are deferred. It waits for them when backward is over, and until then they
        would slow backward down.
        """
        wish = torch.tensor([not pays(())], dtype=torch.uint8)
        return bool(collectives.allreduce(wish, op=Min, process_set=self._process_set))

    def _defer(self, tensors: list[Tensor], reduction: Reduction) -> Work:
        work = Deferred(self, tensors, reduction)
        self._deferred.append(work)
        when_backward_is_over(self._perform_deferred)  # of each: one that failed may have left some
        return work

    def _perform_deferred(self) -> None:
        """In the thread that would wait for them next: another one would only take turns with it."""
        for work in self.begin_deferred():
            work.complete_future()

    def begin_deferred(self) -> list[Deferred]:
        """Begin what was deferred, in the order of the calls. Returns those whose futures the caller completes."""
        self._in_order()
        with self.lock:
            deferred, self._deferred = self._deferred, []
            return [work for work in deferred if work.begin()]
