"""Collectives as operators of PyTorch: torch.ops.farandole.

    import farandole_torch as hvd
    from farandole_torch import operators

    group = operators.group_id()                       # of all ranks, or of a process set
    torch.ops.farandole.all_reduce_(x, hvd.Sum, group)

They take contiguous tensors on the CPU and block until the result is there. A call runs no Python of ours, and a
function that torch.compile compiles keeps them in its graph. They have no gradients. Numbers take the place of objects
and of names: `op` is a reduction (hvd.Sum, hvd.Max, ...), `group` what `group_id` returns, `root` a rank of the job.

All but send and recv are calls without a name: all ranks of a group make its unnamed calls, these and others, in one
order.

Importing this module raises ImportError with PyTorch before 2.9, and where this package was built without a compiler.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
import torch.distributed as dist
from farandole import ArgumentError, ProcessSet
from farandole.plugin.native import api_address

from farandole_torch._operator_errors import as_ours, use
from farandole_torch._versions import require

__all__ = ["as_ours", "group_id"]

require("farandole_torch.operators", (2, 9))  # the first that lets a library without its headers register operators

_BINARY = Path(__file__).with_name("libfarandole_torch.so")
# The tensors come first and the group last: csrc/operators.cc relies on it.
_SCHEMAS = (
    "all_reduce_(Tensor(a!) x, int op, int group) -> ()",
    "all_gather_into(Tensor(a!) output, Tensor x, int group) -> ()",
    "reduce_scatter_into(Tensor(a!) output, Tensor x, int op, int group) -> ()",
    "all_to_all(Tensor(a!) output, Tensor x, int group) -> ()",
    "broadcast_(Tensor(a!) x, int root, int group) -> ()",
    "send(Tensor(a!) x, int target, int tag, int group) -> ()",  # as if it were written, or Inductor drops the call
    "recv(Tensor(a!) x, int source, int tag, int group) -> ()",
)


def _defined() -> torch.library.Library:
    library = torch.library.Library("farandole", "DEF")
    # Inductor must not pass copies of another layout.
    tags = [torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides]
    for schema in _SCHEMAS:
        library.define(schema, tags=tags)
    return library


def _opened() -> ctypes.CDLL:
    if not _BINARY.exists():
        raise ImportError(
            "farandole-torch was built here without a C++ compiler, and so without its operators: install a compiler "
            "and CMake and build it again, or install a wheel"
        )
    library = ctypes.CDLL(str(_BINARY))
    library.farandole_torch_text.restype = ctypes.c_char_p
    library.farandole_torch_open.argtypes = [ctypes.c_void_p]
    library.farandole_torch_code_of.argtypes = [ctypes.c_char_p]
    return library


def _register() -> None:
    if not _native.farandole_torch_open(api_address()):
        reason = _native.farandole_torch_text().decode()
        raise ImportError(f"farandole-torch's operators cannot be used (PyTorch {torch.__version__}): {reason}")
    use(_native)
    for schema in _SCHEMAS:
        packet = getattr(torch.ops.farandole, schema.partition("(")[0])
        for each in (packet, packet.default):  # the other ranks wait for a call whose result nobody reads here
            torch.fx.node.has_side_effect(each)


_native = _opened()
_library = _defined()  # the operators live as long as this does
_register()


def group_id(group: ProcessSet | dist.ProcessGroup | None = None) -> int:
    """Return the number by which the operators know some of the ranks.

    Args:
        group: a process set, or a group of torch.distributed whose backend is farandole; None: all ranks.

    Raises:
        ValueError: this world has no such set, or the group has another backend.

    Example:
        >>> operators.group_id()
        0
    """
    process_set = group
    if isinstance(group, dist.ProcessGroup):
        from farandole_torch._process_group import ProcessGroup

        if not isinstance(group, ProcessGroup):
            raise ArgumentError("the operators of torch.ops.farandole need a group whose backend is farandole")
        process_set = group._process_set
    if process_set is None:
        return 0
    number = process_set.process_set_id
    if number is None:
        raise ArgumentError(f"{process_set} is not a process set of this world: call add_process_set on every rank")
    return int(number)
