"""The contract of plugins: what a framework supplies (Adapter) and what it gets for it.

    from farandole.plugin import Adapter, Collectives
    collectives = Collectives(MyAdapter())     # allreduce, allgather, broadcast, ... for the framework's tensors

A plugin whose native part submits operations itself hands it `api_address()`, and gets what it must say from
`reducing`, `rooted`, `plain` and `call_site`.

A plugin whose framework Keras can run on makes its module `keras` of what `build_keras` returns.

`plugins/_template` is a complete plugin to copy, `farandole.testing.conformance` the suite that each must pass.
"""

from farandole._api.adapter import Adapter, Buffer, DeviceMemory, Direct, DType
from farandole._api.calls import Parameters, check_sequence, check_types, plain, reducing, rooted
from farandole._api.collectives import Collectives, carried_allreduce
from farandole._api.earlier import await_earlier, before_unnamed
from farandole._api.handles import Handle
from farandole._api.mixing import extend
from farandole._api.ops import Kind, ReduceOp, check_linear, check_not_adasum, predivide_factors, reduction
from farandole._api.process_sets import add_own_process_set, is_alone
from farandole._api.refusals import Turn, no_calls_while
from farandole._elastic.handlers import StateDictHandler, StateHandler, VariablesHandler
from farandole._elastic.loaders import ElasticLoader, PlannedBatches
from farandole._elastic.loop import run_within
from farandole._keras import Exchange as KerasExchange
from farandole._keras import ExchangeOptions, Groups, chosen_groups, key_of, with_local_layers
from farandole._keras import Framework as KerasFramework
from farandole._keras import build as build_keras
from farandole._keras import check_op as check_keras_op
from farandole._keras import distribute as distribute_keras
from farandole._runtime.call_sites import pass_over, register_plugin
from farandole._runtime.native import core as _core
from farandole._runtime.uncaught import translate_errors
from farandole._start.bootstrap import Exchange, register_exchange
from farandole._start.environment import TORCHRUN, environment_default
from farandole._start.version_check import version_of
from farandole._start.world import init_as, join_count, note_join, own_address, world_number
from farandole._training.compression import Compression, Compressor, check_compressor
from farandole._training.gradients import GradientReducer, even_groups
from farandole._training.parameter_check import (
    COMPARISON,
    NOT_COMPARED,
    awaits_broadcast,
    checks_parameters,
    checksum,
    compare_parameters,
    row_of,
    sums_by_rank,
    warn_about_differences,
)
from farandole._training.recorder import Recorder

__all__ = [
    "Adapter",
    "Buffer",
    "COMPARISON",
    "Collectives",
    "Compression",
    "Compressor",
    "DType",
    "DeviceMemory",
    "Direct",
    "ElasticLoader",
    "Exchange",
    "ExchangeOptions",
    "GradientReducer",
    "Groups",
    "Handle",
    "KerasExchange",
    "KerasFramework",
    "Kind",
    "NOT_COMPARED",
    "Parameters",
    "PlannedBatches",
    "Recorder",
    "ReduceOp",
    "StateDictHandler",
    "StateHandler",
    "TORCHRUN",
    "Turn",
    "VariablesHandler",
    "add_own_process_set",
    "api_address",
    "await_earlier",
    "awaits_broadcast",
    "before_unnamed",
    "build_keras",
    "call_site",
    "carried_allreduce",
    "check_compressor",
    "check_keras_op",
    "check_linear",
    "check_not_adasum",
    "check_sequence",
    "check_types",
    "checks_parameters",
    "checksum",
    "chosen_groups",
    "compare_parameters",
    "distribute_keras",
    "environment_default",
    "even_groups",
    "extend",
    "init_as",
    "is_alone",
    "join_count",
    "key_of",
    "lost_rank",
    "may_take_device_memory",
    "no_calls_while",
    "note_join",
    "own_address",
    "pass_over",
    "plain",
    "predivide_factors",
    "reducing",
    "reduction",
    "register_exchange",
    "register_plugin",
    "rooted",
    "row_of",
    "run_within",
    "sums_by_rank",
    "takes_device_memory",
    "translate_errors",
    "version_of",
    "warn_about_differences",
    "with_local_layers",
    "world_number",
]


def api_address() -> int:
    """Address of the function table of farandole.h, for a plugin's native part. Valid as long as the process lives."""
    return _core.api_address


def takes_device_memory() -> bool:
    """Returns whether a backend of this world performs operations on tensors as they lie on a device.

    Those that none performs there the core stages in pinned host memory. False before `init`, and in a world of one.
    """
    return _core.takes_device_memory()


def may_take_device_memory() -> bool:
    """Returns whether the settings list a backend that takes tensors as they lie on a device. Before `init`, too."""
    return _core.settings_take_device_memory()


def lost_rank() -> tuple[int, str] | None:
    """The rank whose loss has ended this world, and how; None while there is none."""
    return _core.lost_rank()


def call_site() -> str:
    """Where the user's program called, "train.py:12", above Farandole's and the framework's frames; for messages."""
    return _core.call_site(1)
