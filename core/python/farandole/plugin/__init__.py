"""The interface for plugins: a framework supplies an `Adapter` and gets the collectives.

    from farandole.plugin import Adapter, Collectives
    collectives = Collectives(MyAdapter())     # allreduce, allgather, broadcast, ... of the framework's tensors

A plugin whose native part submits operations itself gets the arguments for the core from `reducing`, `rooted` and
`plain`. Some plugins also need these modules:

    farandole.plugin.native            for a native part, and for frameworks that begin operations after the call
    farandole.plugin.keras             for frameworks that Keras runs on
    farandole.plugin.elastic           states and loaders of elastic training
    farandole.plugin.parameter_check   the warning if ranks start with different parameters
    farandole.plugin.distributed       for the framework's own library of collectives, such as torch.distributed

`plugins/_template` is a complete plugin to copy, `farandole.testing.conformance` the suite that each must pass.
"""

from farandole._api.adapter import Adapter, Buffer, DeviceMemory, Direct, DType
from farandole._api.basic_collectives import BasicCollectives
from farandole._api.calls import Parameters, check_sequence, plain, reducing, rooted
from farandole._api.collectives import Collectives
from farandole._api.mixing import extend
from farandole._api.ops import Kind, check_linear, check_not_adasum, predivide_factors, reduction
from farandole._api.process_sets import is_alone
from farandole._api.refusals import CallGuard
from farandole._runtime.call_sites import register_plugin
from farandole._start.version_check import version_of
from farandole._training.compression import Compression, Compressor, check_compressor
from farandole._training.gradients import GradientReducer, even_groups
from farandole._training.recorder import Recorder

__all__ = [
    "Adapter",
    "BasicCollectives",
    "Buffer",
    "CallGuard",
    "Collectives",
    "Compression",
    "Compressor",
    "DType",
    "DeviceMemory",
    "Direct",
    "GradientReducer",
    "Kind",
    "Parameters",
    "Recorder",
    "check_compressor",
    "check_linear",
    "check_not_adasum",
    "check_sequence",
    "even_groups",
    "extend",
    "is_alone",
    "plain",
    "predivide_factors",
    "reducing",
    "reduction",
    "register_plugin",
    "rooted",
    "version_of",
]
