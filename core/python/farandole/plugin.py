"""The contract of plugins: what a framework supplies (Adapter) and what it gets for it.

    from farandole.plugin import Adapter, Collectives
    collectives = Collectives(MyAdapter())     # allreduce, allgather, broadcast, ... for the framework's tensors

`plugins/_template` is a complete plugin to copy, `farandole.testing.conformance` the suite that each must pass.
"""

from farandole._adapter import Adapter, Buffer, DType
from farandole._collectives import Collectives
from farandole._compression import Compression, Compressor, check_compressor
from farandole._gradients import GradientReducer, even_groups
from farandole._handles import Handle
from farandole._ops import ReduceOp, reduction

__all__ = [
    "Adapter",
    "Buffer",
    "Collectives",
    "Compression",
    "Compressor",
    "DType",
    "GradientReducer",
    "Handle",
    "ReduceOp",
    "check_compressor",
    "even_groups",
    "reduction",
]
