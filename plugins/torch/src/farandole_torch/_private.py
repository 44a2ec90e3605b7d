"""The uses of PyTorch that PyTorch does not promise.

Checked on PyTorch 2.3 to 2.13; docs/guide/torch.md says when, and how far.

| name | what for | where |
|---|---|---|
| `torch.autograd._profiler_enabled` | nothing is prepared for a profiler that is not on | here |
| `torch.cuda._lazy_call` | a rank's GPU is chosen when CUDA is initialized | here |
| `torch.distributed.distributed_c10d._world.pg_names` | a group's name, which it does not know itself | here |
| `torch.nn.modules.batchnorm._BatchNorm` | what torch and others take for a batch normalization | here |
| `Optimizer._optimizer_step_pre_hooks`, `_optimizer_step_post_hooks` | our hooks come before the user's | here |
| `Optimizer.__setstate__` | makes the hooks of an optimizer whose class does not call torch's `__init__` | here |
| `Variable._execution_engine.queue_callback` | a call when backward is over | here |
| `torch.autograd.graph._engine_run_backward` | as a caller: what backward calls without Python | here |
| `torch._C._dynamo.eval_frame.set_code_exec_strategy` | keeps Dynamo from what a function runs (2.13 only) | here |
| `torch._C._current_autograd_node` | tells whether a backward pass still runs nodes | here |
| `function._torchdynamo_disable` | tells Dynamo not to look into it | here |
| `torch.autograd._record_function_with_args_enter` | profilers show our operations | here |
| `torch.autograd._record_function_with_args_exit` | likewise | here |
| `Tensor._version` | tells a gradient that was changed while it was being reduced | here |
| `AllreduceOptions`, its memory | asks for a blocking sum or does not; attributes take 0.6 us | here |
| `_BatchNorm._check_input_dim` | is replaced by one that says more | _normalization.py |
| `ProcessGroup._allgather_base`, `_reduce_scatter_base` | are what some versions call of ours | _process_group.py |

A rule of tests/architecture lets no other module reach for such names.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from types import FrameType, FunctionType
from typing import Any

import torch

BatchNorm = torch.nn.modules.batchnorm._BatchNorm
is_profiler_on = torch.autograd._profiler_enabled
version_of = attrgetter("_version")  # of a tensor: how often it was written
_RUN_BACKWARD = getattr(torch.autograd.graph._engine_run_backward, "__code__", None)


def when_cuda_is_initialized(call: Callable[[], None]) -> None:
    """Call the function once CUDA is initialized, or at once if it is."""
    torch.cuda._lazy_call(call)


def when_backward_is_over(call: Callable[[], None]) -> None:
    """Call it when the backward pass that runs in this thread is over, before what is asked for later."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def hide_from_dynamo(function: Any) -> None:
    """Have Dynamo look neither into this function or method nor into what it calls, where PyTorch is new enough.

    `torch.compiler.disable` does the same, and takes 0.7 us of each call. No-op for anything that is not defined in
    Python where it says: the code of a decorator is everybody's.
    """
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or function.__globals__["__name__"] != function.__module__:
        return
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    with suppress(ImportError):
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))


def is_called_by_engine(frame: FrameType) -> bool:
    """Return whether autograd's engine has called this frame: C++ did, and no hook or callback in Python."""
    return frame.f_back is not None and frame.f_back.f_code is _RUN_BACKWARD


def is_called_by_backward(frame: FrameType) -> bool:
    """Return whether a node of a backward pass has called this frame, from C++.

    When the last node has run, the engine makes the calls of `when_backward_is_over`, and they are in no node.
    """
    return is_called_by_engine(frame) and torch._C._current_autograd_node() is not None


def begin_event(title: str, tensors: Sequence[torch.Tensor]) -> Any:
    """Begin what a profiler shows under this title, with the tensors' shapes. Returns what ends it, in any thread."""
    return torch.autograd._record_function_with_args_enter(title, *tensors)


def end_event(event: Any) -> None:
    """End what `begin_event` has begun."""
    torch.autograd._record_function_with_args_exit(event)


def name_of_group(group: Any, default: str) -> str:
    """Return the name that torch.distributed gives the group; `default` until it has one."""
    return str(torch.distributed.distributed_c10d._world.pg_names.get(group, default))


def allocated_bytes(address: int) -> int:
    """Return how many bytes `malloc` has for this object of its; 0 for None, or where that cannot be asked."""
    ask = getattr(ctypes.CDLL(None), "malloc_usable_size", None)
    if ask is None:
        return 0
    ask.argtypes, ask.restype = [ctypes.c_void_p], ctypes.c_size_t
    return int(ask(address))


@functools.cache
def image_of_blocking_sum() -> tuple[type, int, bytes, bytes] | None:
    """What lies in an AllreduceOptions that asks for a blocking sum: see `carried_allreduce`. None where it varies.

    pybind11 keeps a pointer to what is in C++ behind the head of an object. Which bytes there tell the reduction, and
    which one whether the operation blocks, is found by trying all. In PyTorch 2.13 the object has the 64 bytes that are
    read, and in earlier versions more. None, too, if a later one allocates less.
    """
    import torch.distributed as dist

    pointer_at, size, seen = object.__basicsize__, 64, []
    kinds = {**dist.ReduceOp.RedOpType.__members__}
    kinds.pop("PREMUL_SUM", None)  # which comes with a factor
    for kind, is_async in itertools.product(kinds.values(), (0, 1)):
        options = dist.AllreduceOptions()
        if not hasattr(options, "asyncOp"):
            return None
        options.reduceOp, options.asyncOp = kind, bool(is_async)
        address = ctypes.c_void_p.from_address(id(options) + pointer_at).value or 0
        if allocated_bytes(address) < size:
            return None
        seen.append((int(kind), is_async, ctypes.string_at(address, size)))
    of_kind = [at for at in range(size) if all(memory[at] == kind for kind, _, memory in seen)]
    of_async = [at for at in range(size) if all(memory[at] == is_async for _, is_async, memory in seen)]
    if len(of_kind) != 1 or len(of_async) != 1:
        return None
    return dist.AllreduceOptions, pointer_at, bytes([*of_kind, *of_async]), bytes([int(dist.ReduceOp.SUM), 0])


def complete(optimizer: Any) -> None:
    """Give an optimizer whose class does not call torch's `__init__`, as in copies of Lookahead, what that makes.

    The class must be one that other optimizers do not have: its `step` calls the hooks from now on.
    """
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        if not hasattr(optimizer, "defaults"):
            optimizer.defaults = {}
        torch.optim.Optimizer.__setstate__(optimizer, {})


def before_each_step(optimizer: Any, hook: Callable[..., Any]) -> None:
    """Call the hook before each step of the optimizer, and before what the user has registered for that."""
    handle = optimizer.register_step_pre_hook(hook)
    optimizer._optimizer_step_pre_hooks.move_to_end(handle.id, last=False)


def after_each_step(optimizer: Any, hook: Callable[..., Any]) -> None:
    """Call the hook after each step of the optimizer, and before what the user has registered for that."""
    handle = optimizer.register_step_post_hook(hook)
    optimizer._optimizer_step_post_hooks.move_to_end(handle.id, last=False)
