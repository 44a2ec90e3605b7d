"""A process group of torch.distributed whose collectives are Farandole's.

    dist.all_reduce, DistributedDataParallel, fully_shard --> ProcessGroup --> Collectives --> Work --> wait, get_future

Collectives are without a name, so that the ranks' calls are matched by their order in the group, as torch.distributed
asks; send and recv have names, for the other ranks do not call them. The waiter copies the core's
results to where torch wants them. Ranks, and roots, are numbers in the group.

Sums that backward itself asks for, DistributedDataParallel's, begin when it is over where overlap does not pay.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from farandole import Average, Handle, Max, Min, ProcessSet, Product, ReduceOp, Sum
from farandole.plugin.distributed import carried_allreduce

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._futures import Completer, Futures
from farandole_torch._overlap import pays
from farandole_torch._private import (
    hide_from_dynamo,
    image_of_blocking_sum,
    is_called_by_backward,
    is_called_by_engine,
    name_of_group,
    when_backward_is_over,
)
from farandole_torch._sparse import begin

_OPS = {"SUM": Sum, "AVG": Average, "MIN": Min, "MAX": Max, "PRODUCT": Product}
_SUM = dist.ReduceOp.SUM
_BLOCKING_SUM = (("asyncOp", False), ("reduceOp", _SUM))  # in the options of an allreduce
_DROPPED = 16  # works that only C++ has: one for each model in a Join
_PASSES = 1024  # from one rank to another with one tag, that are under way at a time


class Work(dist.Work):  # type: ignore[misc]  # torch is not read
    """Operations that are under way; complete when the last of them is."""

    def __init__(
        self, group: ProcessGroup, handles: Sequence[Handle[Any]], result: list[Any], is_ordered: bool = True
    ) -> None:
        """`is_ordered`: the ranks' calls are matched by their order, not by a name."""
        super().__init__()
        self._group, self._handles, self._result, self._is_ordered = group, handles, result, is_ordered
        self._trigger: Any = None  # completes the future
        self._future: Any = None
        self._is_used = not is_ordered  # somebody has waited, or has the future

    def wait(self, timeout: Any = None) -> bool:
        """Block until complete; raises the operation's error. FARANDOLE_TIMEOUT says for how long, not `timeout`."""
        self._is_used = True
        try:
            self._await_handles()
        finally:
            if self._future is not None:
                with suppress(RuntimeError):  # which quotes the operation's error
                    self._future.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the results are there; never blocks for long."""
        if not self._is_over():
            return False
        self.exception()  # who polls need not wait: what the core allocated is copied now
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Of an operation that is complete."""
        try:
            self.wait()
        except Exception as error:
            return error
        return None

    def result(self) -> list[Any]:
        return self._result

    def get_future(self) -> Any:
        """An error is a RuntimeError that quotes it. Callbacks run in threads of their own, and may block."""
        self._is_used = True
        with self._group.lock:
            if self._future is None:
                self._trigger = torch.futures.Future(devices=_gpus_of(self._result))
                # An error that `set_exception` sets is a result to C++, where DistributedDataParallel crashes on it.
                self._future = self._trigger.then(self._result_or_error)
                if self._is_over():
                    self.complete_future()
                else:
                    self._have_future_completed(is_called_by_engine(sys._getframe()))
        return self._future

    def complete_future(self) -> None:
        """Wait, and tell who waits for the future."""
        with suppress(Exception):  # `_result_or_error` raises it again
            self._await_handles()
        self._trigger.set_result(None)

    def _have_future_completed(self, by_engine: bool) -> None:
        self._group.complete_later(self, has_callbacks=self._is_ordered and not by_engine)

    def _is_over(self) -> bool:
        return all(handle.done() for handle in self._handles)

    def _await_handles(self) -> None:
        for handle in self._handles:
            handle.wait()

    def _result_or_error(self, _: Any) -> list[Any]:
        self._await_handles()
        return self._result

    def __del__(self) -> None:
        """C++ may still have it: DistributedDataParallel waits in backward for what Join began in forward."""
        if not self._is_used:
            self._group.dropped.append(self)


class Deferred(Work):
    """Sums that begin when backward is over, or when somebody waits for them."""

    def __init__(self, group: ProcessGroup, tensors: list[Tensor], op: ReduceOp) -> None:
        super().__init__(group, [], tensors)
        self._op = op

    def begin(self) -> bool:
        """Called once, in the order of the calls. Returns whether somebody must complete the future."""
        self._handles = [self._group.begin_sum(each, self._op) for each in self._result]
        return self._future is not None

    def wait(self, timeout: Any = None) -> bool:
        self._begin_all()
        return super().wait()

    def is_completed(self) -> bool:
        self._begin_all()
        return super().is_completed()

    def _begin_all(self) -> None:
        for work in self._group.begin_deferred():
            self._group.complete_later(work)

    def _is_over(self) -> bool:
        return bool(self._handles) and super()._is_over()

    def _have_future_completed(self, by_engine: bool) -> None:
        if self._handles:  # it has begun; else who begins it does this
            super()._have_future_completed(by_engine)


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """All ranks of the world, or those of a process set."""

    def __init__(self, rank: int, ranks: Sequence[int], process_set: ProcessSet | None) -> None:
        """`ranks`: those of the world, by their number in the group; `rank`: this one's number in it."""
        super().__init__(rank, len(ranks))
        self._rank, self._ranks, self._process_set = rank, list(ranks), process_set
        self._passes: dict[tuple[int, int, int], int] = {}  # (source, target, tag) -> how many there were
        self._name = ""  # as torch calls it, also when torch has forgotten the group
        self._defers = len(ranks) > 1 and self._all_defer()  # sums that backward asks for
        self._deferred: list[Deferred] = []
        self.lock = threading.Lock()  # of what is deferred, and of futures
        self._futures, self._futures_with_callbacks = Futures(), Futures()
        self.dropped: deque[Work] = deque(maxlen=_DROPPED)  # that nobody has waited for
        # Before the method of that name, which it calls: small sums on CPUs are so frequent that each frame counts.
        self._faster: Any = carried_allreduce(
            collectives, process_set, _BLOCKING_SUM, self.allreduce, image_of_blocking_sum()
        )
        self.__dict__["allreduce"] = self._faster

    def complete_later(self, work: Work, has_callbacks: bool = False) -> None:
        """Have a thread complete its future. `has_callbacks`: they may begin operations, see `_in_order`."""
        if has_callbacks:
            self.__dict__.pop("allreduce", None)
        (self._futures_with_callbacks if has_callbacks else self._futures).add(work)

    def _in_order(self) -> ProcessSet | None:
        """The set, for a call that is matched by its order.

        On all ranks it comes after the calls by callbacks of the futures before it, as it does with a library that runs
        callbacks within `then`.
        """
        if "allreduce" not in self.__dict__ and not isinstance(threading.current_thread(), Completer):
            self._futures_with_callbacks.join()
            if self._faster is not None:
                self.__dict__["allreduce"] = self._faster
        return self._process_set

    def shutdown(self) -> None:
        """End the group's threads, when they have completed what they were given. Called when a group is destroyed."""
        self.__dict__.pop("allreduce", None)
        self._faster = None  # which refers to this group
        self.dropped.clear()
        self._futures.end()
        self._futures_with_callbacks.end()

    abort = shutdown

    # ---- what torch asks of a group

    @property
    def group_name(self) -> str:
        self._name = name_of_group(self, self._name)
        return self._name

    pg_name = group_name

    def getBackendName(self) -> str:
        return "farandole"

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return len(self._ranks)

    # ---- reductions

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Work | None:
        """None: it is over. PyTorch that says `asyncOp` takes that, and to make and wait for a Work takes 1 us."""
        if getattr(opts, "asyncOp", True) or len(tensors) != 1 or tensors[0].is_sparse:
            op = _op(opts)
            if self._defers and tensors[0].is_cpu and is_called_by_backward(sys._getframe()):
                return self._defer(tensors, op)
            self._in_order()
            return Work(self, [self.begin_sum(each, op) for each in tensors], tensors)
        collectives.allreduce_(tensors[0], op=_op(opts), process_set=self._in_order())  # the caller would wait next
        return None

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        handle = collectives.grouped_allreduce_async_(tensors, op=_op(opts), process_set=self._in_order())
        return Work(self, [handle], tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Work:
        handle = collectives.allreduce_async(tensors[0], op=_op(opts), process_set=self._in_order())
        is_root = opts.rootRank == self._rank
        return Work(self, [handle.map(lambda sums: _fill(tensors[:1], [sums]) if is_root else None)], tensors)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        rows = [each.reshape(self.getSize(), -1) for each in inputs]
        handle = collectives.grouped_reducescatter_async(rows, op=_op(opts), process_set=self._in_order())
        return Work(self, [handle.map(lambda parts: _fill(outputs, parts))], outputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Work:
        flat = torch.cat([each.reshape(-1) for each in inputs[0]])
        start = sum(each.numel() for each in inputs[0][: self._rank])
        mine = slice(start, start + outputs[0].numel())
        handle = collectives.allreduce_async_(flat, op=_op(opts), process_set=self._in_order())
        return Work(self, [handle.map(lambda sums: _fill(outputs, [sums[mine]]))], outputs)

    # ---- moves

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work:
        root = self._ranks[opts.rootRank]
        handles = [collectives.broadcast_async_(each, root, process_set=self._in_order()) for each in tensors]
        return Work(self, handles, tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._gathered([inputs[0]], lambda all: _fill_flat(outputs[0], all[0]), outputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [input])

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        return self._gathered(inputs, lambda all: _fill(outputs, all), outputs)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        def fill(gathered: list[Tensor]) -> None:  # outputs: of each rank, all tensors
            for index, flat in enumerate(gathered):
                _fill_flat([of_rank[index] for of_rank in outputs], flat)

        return self._gathered(inputs, fill, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        flat = inputs[0].reshape(-1)
        splits = [flat.numel() if place == opts.rootRank else 0 for place in range(self.getSize())]
        return self._exchanged(flat, splits, outputs[0] if opts.rootRank == self._rank else [])

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        if opts.rootRank != self._rank:
            return self._exchanged(outputs[0].new_empty(0), [0] * self.getSize(), outputs)
        flats = [each.reshape(-1) for each in inputs[0]]
        return self._exchanged(torch.cat(flats), [each.numel() for each in flats], outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        flats = [each.reshape(-1) for each in inputs]
        return self._exchanged(torch.cat(flats), [each.numel() for each in flats], outputs)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Work:
        rows = input_splits or [input.shape[0] // self.getSize()] * self.getSize()
        return self._exchanged(input, rows, [output])

    def _all_defer(self) -> bool:
        """Ask all ranks, since the order of the calls must be one on all of them.

        Only sums of DistributedDataParallel are deferred. It waits for them when backward is over, and until then they
        would slow backward down.
        """
        wish = torch.tensor([not pays(())], dtype=torch.uint8)
        return bool(collectives.allreduce(wish, op=Min, process_set=self._process_set))

    def _defer(self, tensors: list[Tensor], op: ReduceOp) -> Work:
        work = Deferred(self, tensors, op)
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

    def begin_sum(self, tensor: Tensor, op: ReduceOp) -> Handle[Any]:
        """Begin to add up a tensor, dense or sparse, in place. REQUIRES: it is in order."""
        if tensor.layout is not torch.sparse_coo:
            return collectives.allreduce_async_(tensor, op=op, process_set=self._process_set)
        handle, _ = begin(tensor, None, op, self._process_set)
        return handle.map(lambda result: _fill([tensor], [result.coalesce()]))

    # ---- from one rank to another: a broadcast in the process set of the two

    def send(self, tensors: list[Tensor], target: int, tag: int = 0) -> Work:
        return self._passed(tensors, self._rank, target, tag)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Work:
        return self._passed(tensors, source, self._rank, tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        raise ValueError(
            "the backend farandole does not receive from just anyone: say from whom, recv(tensor, src=...)"
        )

    def _passed(self, tensors: list[Tensor], source: int, target: int, tag: int) -> Work:
        """Matched by the tag, and by the order of those that have it."""
        pair = self._pair(source, target)
        count = self._passes[source, target, tag] = self._passes.get((source, target, tag), 0) + 1
        name = f"{self.group_name}.{source}.to.{target}.{tag}.{count % _PASSES}"
        root = self._ranks[source]
        handles = [collectives.broadcast_async_(each, root, name, pair) for each in tensors]
        return Work(self, handles, tensors, is_ordered=False)

    def _pair(self, source: int, target: int) -> ProcessSet | None:
        if self.getSize() == 2:
            return self._process_set
        ranks = sorted([self._ranks[source], self._ranks[target]])
        pair = ProcessSet(ranks)
        if pair.process_set_id is None:
            raise ValueError(
                "send and recv of the backend farandole need a process set of the two ranks: call "
                f"farandole_torch.add_process_set({ranks}) on every rank before, or use scatter or all_to_all"
            )
        return pair

    def barrier(self, opts: Any = None) -> Work:
        handle = collectives.allreduce_async_(torch.zeros(1, dtype=torch.uint8), op=Sum, process_set=self._in_order())
        return Work(self, [handle], [])

    def _gathered(self, inputs: Sequence[Tensor], fill: Callable[[list[Tensor]], None], result: list[Any]) -> Work:
        flats = [each.reshape(-1) for each in inputs]
        handle = collectives.grouped_allgather_async(flats, process_set=self._in_order())
        return Work(self, [handle.map(fill)], result)

    def _exchanged(self, sent: Tensor, splits: list[int], outputs: list[Tensor]) -> Work:
        handle = collectives.alltoall_async(sent, splits, process_set=self._in_order())
        return Work(self, [handle.map(lambda both: _fill_flat(outputs, both[0].reshape(-1)))], outputs)


def _gpus_of(result: Any) -> list[torch.device]:
    """Where the tensors of nested lists lie, if not on the host: a future must know it."""
    if isinstance(result, torch.Tensor):
        return [result.device] if result.is_cuda else []
    return [*dict.fromkeys(device for each in result or () for device in _gpus_of(each))]


def _op(opts: Any) -> ReduceOp:
    if opts is None or opts.reduceOp == _SUM:
        return Sum
    # They know whether they are equal, but not their names.
    name = next((name for name, each in dist.ReduceOp.RedOpType.__members__.items() if opts.reduceOp == each), "this")
    if name not in _OPS:
        raise ValueError(f"the backend farandole cannot reduce by {name}; it can by {', '.join(_OPS)}")
    return _OPS[name]


def _fill(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors of as many elements."""
    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source if source.shape == target.shape else source.reshape(target.shape))


def _fill_flat(targets: Sequence[Tensor], flat: Tensor) -> None:
    if targets:
        _fill(targets, flat.split([each.numel() for each in targets]))


# Names before torch 2.13, which C++ and Python of other versions still call.
_OLDER_NAMES = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "all_to_all_single": "alltoall_base",
}
_COLLECTIVES = """
    allreduce allreduce_coalesced reduce reduce_scatter reduce_scatter_single reduce_scatter_single_coalesced
    allgather allgather_coalesced all_gather_single all_gather_single_coalesced
    broadcast gather scatter alltoall alltoall_base barrier send recv recv_anysource
""".split()

for _name in _COLLECTIVES:
    hide_from_dynamo(getattr(ProcessGroup, _name))
for _older, _name in _OLDER_NAMES.items():
    setattr(ProcessGroup, _older, getattr(ProcessGroup, _name))
