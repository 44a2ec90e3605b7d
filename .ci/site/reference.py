"""The names of the API reference: their pages, their order there, and the places of docstrings that no import shows.

Only the standard library is needed here, so that a test of the default run can compare the tables with the sources.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("core/python", "plugins/torch/src", "plugins/tensorflow/src", "plugins/mxnet/src")
SOURCES += ("plugins/ray/src", "plugins/spark/src")
Node = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Page:
    """One module: its names by subject, and a remark below its docstring."""

    module: str
    sections: dict[str, list[str]]
    remark: str = ""
    inherits: Sequence[str] = field(default=())  # classes that are shown with the members of their bases


_REDUCING = ["allreduce", "allreduce_", "grouped_allreduce", "grouped_allreduce_"]
_REDUCING_ASYNC = ["allreduce_async", "allreduce_async_", "grouped_allreduce_async", "grouped_allreduce_async_"]
_SCATTERING = ["reducescatter", "grouped_reducescatter"]
_GATHERING = ["allgather", "grouped_allgather"]
_EXCHANGE = ["alltoall", "broadcast"]
_CORE = "It also has all names of [farandole](farandole.md), which are not repeated here."
_ELASTIC = "[The guide](../guide/elastic.md) says how elastic training works."
_OF_THE_CORE = ["Batches", "ElasticSampler", "ObjectState", "State"]
_KERAS = (
    "`farandole_torch.keras` and `farandole_tensorflow.keras` have the same names, and `farandole.keras` is the one of "
    "the framework on which Keras runs. " + _CORE
)


def _with_async(names: list[str]) -> list[str]:
    return [form for name in names for form in (name, f"{name}_async")]


PAGES = (
    Page(
        "farandole",
        {
            "Start and end": ["init", "is_initialized", "shutdown"],
            "Functions on several ranks": ["run"],
            "Ranks": ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous"],
            "Reductions": ["ReduceOp", "Average", "Sum", "Min", "Max", "Product", "Adasum"],
            "Objects and order": ["allgather_object", "broadcast_object", "barrier", "join"],
            "Metrics and checkpoints": ["average_metrics", "save_checkpoint", "load_checkpoint"],
            "Handles": ["Handle", "poll", "synchronize"],
            "Process sets": [
                "ProcessSet",
                "add_process_set",
                "get_process_set_ids_and_ranks",
                "global_process_set",
                "process_set_included",
                "remove_process_set",
            ],
            "Timelines and scalars": ["start_timeline", "stop_timeline", "StepScalars"],
            "Errors": [
                "FarandoleError",
                "ArgumentError",
                "ArgumentTypeError",
                "MismatchError",
                "NotInitializedError",
                "RecoverableError",
                "HorovodInternalError",
                "HostsUpdatedInterrupt",
                "MembershipError",
                "PeerLostError",
                "DeadlineError",
            ],
            "Libraries": [
                "ccl_built",
                "cuda_built",
                "ddl_built",
                "gloo_built",
                "gloo_enabled",
                "mpi_built",
                "mpi_enabled",
                "mpi_threads_supported",
                "nccl_built",
                "rocm_built",
            ],
            "Version": ["__version__"],
        },
        "Each plugin has all of these names, too: `hvd.rank()` after `import farandole_torch as hvd`.",
    ),
    Page(
        "farandole.elastic",
        {"Elastic training": ["run", "State", "ObjectState", "Batches", "ElasticSampler"]},
        "The plugins have an `elastic` of their own, with states for models and optimizers. "
        "[The guide](../guide/elastic.md) says how it works.",
    ),
    Page(
        "farandole.numpy",
        {
            "Reductions": [
                *_REDUCING,
                *_REDUCING_ASYNC,
                "persistent_allreduce",
                *_with_async(_SCATTERING),
                *_with_async(["sparse_allreduce"]),
            ],
            "Gathering": _with_async(_GATHERING),
            "Exchange": [*_with_async(_EXCHANGE), "broadcast_", "broadcast_async_", "broadcast_parameters"],
            "Compression": ["Compression"],
        },
        _CORE,
    ),
    Page(
        "farandole_torch",
        {
            "Training": [
                "DistributedOptimizer",
                "broadcast_parameters",
                "broadcast_optimizer_state",
                "no_sync",
                "SyncBatchNorm",
            ],
            "Start": ["init"],
            "Reductions": [
                *_REDUCING,
                *_REDUCING_ASYNC,
                "persistent_allreduce",
                *_with_async(_SCATTERING),
                "sparse_allreduce_async",
            ],
            "Gathering": _with_async(_GATHERING),
            "Exchange": [*_with_async(_EXCHANGE), "broadcast_", "broadcast_async_"],
            "Compression": ["Compression"],
            "Modules": ["elastic", "mpi_ops"],
        },
        _CORE + " The backend of `torch.distributed` has [a section in the guide](../guide/torch.md#torchdistributed).",
    ),
    Page(
        "farandole_torch.elastic",
        {"Elastic training": ["run", "TorchState", "DataLoader", *_OF_THE_CORE]},
        _ELASTIC,
    ),
    Page(
        "farandole_torch.lightning",
        {"Lightning": ["FarandoleStrategy", "FarandoleFabricStrategy", "FarandoleEnvironment"]},
        "[The guide](../guide/integrations.md) has scripts. Importing the module registers the strategy `farandole`.",
    ),
    Page(
        "farandole_tensorflow",
        {
            "Training": [
                "DistributedOptimizer",
                "DistributedGradientTape",
                "PartialDistributedGradientTape",
                "no_sync",
            ],
            "Variables": [
                "broadcast_variables",
                "broadcast_",
                "broadcast_global_variables",
                "BroadcastGlobalVariablesHook",
            ],
            "Layers and compilers": ["SyncBatchNormalization", "use_xla"],
            "Scalars": ["StepScalars"],
            "Reductions": ["allreduce", "grouped_allreduce", *_SCATTERING],
            "Gathering": _GATHERING,
            "Exchange": _EXCHANGE,
            "Objects and order": ["allgather_object", "broadcast_object", "broadcast_object_fn", "barrier", "join"],
            "Ranks in graphs": ["rank_op", "size_op", "local_rank_op", "local_size_op", "process_set_included_op"],
            "Compression": ["Compression"],
            "Modules": ["elastic"],
        },
        _CORE,
    ),
    Page(
        "farandole_tensorflow.elastic",
        {"Elastic training": ["run", "TensorFlowState", "TensorFlowKerasState", "Dataset", *_OF_THE_CORE]},
        _ELASTIC + " That of [farandole.keras](farandole.keras.md) has callbacks for `model.fit`, too.",
    ),
    Page(
        "farandole_mxnet",
        {
            "Training": ["DistributedTrainer", "DistributedOptimizer", "broadcast_parameters", "no_sync"],
            "Start and end": ["init", "shutdown"],
            "Reductions": [*_REDUCING, *_SCATTERING],
            "Gathering": _GATHERING,
            "Exchange": [*_EXCHANGE, "broadcast_"],
            "Compression": ["Compression"],
            "Modules": ["elastic"],
        },
        _CORE,
    ),
    Page(
        "farandole_mxnet.elastic",
        {"Elastic training": ["run", "MXNetState", "DataLoader", *_OF_THE_CORE]},
        _ELASTIC,
    ),
    Page(
        "farandole_spark",
        {"Functions on ranks": ["run", "run_elastic", "HorovodRunner"], "In a rank": ["log_to_driver"]},
        "[The guide](../guide/spark.md) says what a cluster needs.",
    ),
    Page("farandole_spark.keras", {"Callbacks": ["LogCallback"]}),
    Page(
        "farandole.keras",
        {
            "Training": ["DistributedOptimizer", "PartialDistributedOptimizer", "load_model", "no_sync"],
            "Callbacks": [
                "callbacks.BroadcastGlobalVariablesCallback",
                "callbacks.MetricAverageCallback",
                "callbacks.BestModelCheckpoint",
                "callbacks.StepScalarsCallback",
                "callbacks.LearningRateScheduleCallback",
                "callbacks.LearningRateWarmupCallback",
            ],
            "Elastic training": [
                "elastic.KerasState",
                "elastic.CommitStateCallback",
                "elastic.UpdateBatchStateCallback",
                "elastic.UpdateEpochStateCallback",
                "elastic.UpdateDataCallback",
            ],
            "Values": ["allreduce", "allgather", "broadcast", "reducescatter"],
            "Variables of TF1's graphs, where Keras runs on TensorFlow": ["broadcast_global_variables"],
            "Compression": ["Compression"],
        },
        _KERAS,
    ),
    Page(
        "farandole.plugin",
        {
            "Tensors": ["Adapter", "Buffer", "DType", "DeviceMemory", "Direct"],
            "Operations": ["Collectives", "BasicCollectives", "Kind", "Recorder", "register_plugin", "version_of"],
            "Calls": ["Parameters", "plain", "reducing", "rooted", "Turn"],
            "Checks of arguments": [
                "check_compressor",
                "check_linear",
                "check_not_adasum",
                "check_sequence",
                "reduction",
            ],
            "Training": [
                "GradientReducer",
                "even_groups",
                "predivide_factors",
                "Compression",
                "Compressor",
                "extend",
                "is_alone",
            ],
        },
        "[A checklist](../extending/plugin.md) leads from the first file of a plugin to its last test.",
        ("Collectives",),
    ),
    Page(
        "farandole.plugin.native",
        {
            "The core": ["api_address", "check_types", "lost_rank", "Communicator", "ProcessSets"],
            "Order": ["await_earlier", "before_unnamed", "no_calls_while"],
            "Devices": ["environment_default", "may_take_device_memory", "takes_device_memory"],
            "Messages": ["call_site", "translate_errors"],
        },
    ),
    Page(
        "farandole.plugin.keras",
        {
            "The module": ["Framework", "Training", "Values"],
            "Callbacks": ["BestOnly", "Broadcasting", "MetricAveraging", "Scalars", "Schedule", "Warmup"],
            "Elastic training": ["StateOfModel", "Commit", "UpdateBatch", "UpdateData", "UpdateEpoch"],
            "Optimizers": ["Exchange", "ExchangeOptions", "Groups", "distribute", "key_of"],
            "Arguments": ["check_op", "chosen_groups", "with_local_layers"],
        },
    ),
    Page(
        "farandole.plugin.elastic",
        {
            "States": ["StateHandler", "StateDictHandler", "VariablesHandler", "run_within"],
            "Data": ["ElasticLoader", "PlannedBatches"],
        },
    ),
    Page(
        "farandole.plugin.parameter_check",
        {
            "The comparison": ["compare_parameters", "checks_parameters", "checksum", "NOT_COMPARED"],
            "Its parts": ["COMPARISON", "row_of", "sums_by_rank", "warn_about_differences"],
            "When to compare": ["awaits_broadcast", "join_count", "note_join", "world_number"],
        },
    ),
    Page(
        "farandole.plugin.distributed",
        {
            "Collectives": ["add_own_process_set", "carried_allreduce"],
            "Start": ["Exchange", "TORCHRUN", "init_as", "own_address", "register_exchange"],
        },
    ),
    Page(
        "farandole.engine",
        {
            "On the driver": ["Call", "TaskServer", "Invitation", "Host", "Task", "DriverLog", "WaitMessages"],
            "In a task": ["serve"],
            "In a rank": ["log_to_driver"],
            "Commits outside of the ranks": ["CommitStore", "CommitTarget"],
            "Calls as bytes": ["pack_call", "unpack_call", "outcome_of", "traceback_in", "result_in"],
            "Messages": ["say", "hear", "hear_bytes", "is_ours"],
            "Output": ["is_name_of_rank"],
        },
        "For plugins that run ranks in the tasks of a cluster, as `farandole-spark` does.",
        ("Call", "TaskServer"),
    ),
    Page(
        "farandole.launch",
        {"Jobs from a program": ["run", "JobSpec", "JobResult", "SpecError", "Stop"]},
        "[The guide](../guide/notebooks.md#commands-from-a-program) has an example.",
    ),
    Page(
        "farandole.launch.events",
        {"Events": ["Event", "RankStarted", "RankEnded", "MembershipChanged", "RanksLate", "JobEnded", "read"]},
        "[The launcher](../design/launcher.md#events) has the schema.",
    ),
    Page(
        "farandole_ray",
        {"On a Ray cluster": ["RayExecutor", "Settings"], "On a rank": ["log"], "In Ray Train": ["FarandoleConfig"]},
        "[The guide](../guide/ray.md) says how ranks start and end there.",
    ),
    Page(
        "farandole_ray.horovod",
        {
            "Horovod's names": [
                "ElasticRayExecutor",
                "ElasticSettings",
                "RayExecutor",
                "RayHostDiscovery",
                "TestDiscovery",
            ]
        },
    ),
    Page(
        "farandole.testing",
        {"Ranks in a test": ["world", "World", "spawn", "Ended", "RanksFailed", "preload", "rank_environments"]},
    ),
    Page(
        "farandole.testing.conformance",
        {"The suite": ["Subject", "tests", "checks", "perform", "ALL_DTYPES", "RANKS"]},
    ),
)

_FORMS = {
    f"{name}{ending}": f"farandole._api.forms:{form}.{name}"
    for name, form in (("allreduce", "Form"), ("broadcast", "Form"), ("grouped_allreduce", "GroupedForm"))
    for ending in ("_", "_async", "_async_")
}
_METHODS = [*_with_async([*_SCATTERING, *_GATHERING, "alltoall", "sparse_allreduce"])]
_BASIC = ["allreduce", "grouped_allreduce", *_SCATTERING, *_GATHERING]
_OPERATIONS = _FORMS | {name: f"farandole._api.row_collectives:RowCollectives.{name}" for name in _METHODS}
_OPERATIONS |= {name: f"farandole._api.basic_collectives:BasicCollectives.{name}" for name in _BASIC}
_OPERATIONS["broadcast_parameters"] = "farandole._api.collectives:Collectives.broadcast_parameters"
_OPERATIONS["broadcast"] = "farandole._api.forms:Form.broadcast"
_OPERATIONS["Compression"] = "farandole._training.compression:Compression"

# Public name -> "module:Qualified.name" of its docstring, where an assignment makes the name, as in
# `allreduce = _collectives.allreduce`. The first part of a qualified name may be the function that defines the rest.
HOMES = {
    f"{module}.{name}": home for module in ("farandole.numpy", "farandole_torch") for name, home in _OPERATIONS.items()
}
del HOMES["farandole_torch.sparse_allreduce"], HOMES["farandole_torch.sparse_allreduce_async"]  # the latter is its own
HOMES |= {f"{module}.Compression": _OPERATIONS["Compression"] for module in ("farandole_tensorflow", "farandole_mxnet")}
HOMES |= {
    f"farandole.keras.{name}": home
    for name, home in {
        "Compression": _OPERATIONS["Compression"],
        "DistributedOptimizer": "farandole._keras.training:Training.DistributedOptimizer",
        "allgather": "farandole._keras.values:Values.allgather",
        "allreduce": "farandole._keras.values:Values.allreduce",
        "broadcast": "farandole._keras.values:Values.broadcast",
        "broadcast_global_variables": "farandole_tensorflow._variables:broadcast_global_variables",
        "callbacks.BestModelCheckpoint": "farandole._keras.callbacks:BestOnly",
        "callbacks.BroadcastGlobalVariablesCallback": "farandole._keras.callbacks:Broadcasting",
        "callbacks.LearningRateScheduleCallback": "farandole._keras.learning_rate:Schedule",
        "callbacks.LearningRateWarmupCallback": "farandole._keras.learning_rate:Warmup",
        "callbacks.MetricAverageCallback": "farandole._keras.callbacks:MetricAveraging",
        "callbacks.StepScalarsCallback": "farandole._keras.callbacks:Scalars",
        "elastic.CommitStateCallback": "farandole._keras.elastic:Commit",
        "elastic.KerasState": "farandole._keras.elastic:StateOfModel",
        "elastic.UpdateBatchStateCallback": "farandole._keras.elastic:UpdateBatch",
        "elastic.UpdateDataCallback": "farandole._keras.elastic:UpdateData",
        "elastic.UpdateEpochStateCallback": "farandole._keras.elastic:UpdateEpoch",
        "load_model": "farandole._keras.training:Training.load_model",
        "no_sync": "farandole._keras.training:Training.no_sync",
        "reducescatter": "farandole._keras.values:Values.reducescatter",
    }.items()
}

# Public name -> the name that it extends by `local_layers`, and the module with its example; see `with_local_layers`.
WITH_LOCAL_LAYERS = {
    "farandole.keras.PartialDistributedOptimizer": ("DistributedOptimizer", "farandole._keras.training"),
    "farandole_tensorflow.PartialDistributedGradientTape": (
        "DistributedGradientTape",
        "farandole_tensorflow._tape",
    ),
}


def file_of(module: str) -> Path:
    """The source of a module of ours."""
    for folder in SOURCES:
        path = ROOT / folder / module.replace(".", "/")
        for found in (path.with_suffix(".py"), path / "__init__.py"):
            if found.is_file():
                return found
    raise LookupError(f"no source of {module} in {', '.join(SOURCES)}")


def definitions(home: str) -> list[Node]:
    """The function or class at "module:Qualified.name", after its overloads."""
    module, _, qualified = home.partition(":")
    found: list[Node] = [ast.parse(file_of(module).read_text(encoding="utf-8"))]  # type: ignore[list-item]
    for name in qualified.split("."):
        inside = found[-1].body
        found = [each for each in inside if isinstance(each, ast.FunctionDef | ast.ClassDef) and each.name == name]
        if not found:
            raise LookupError(f"no {name} for {home}")
    return found


def page_text(page: Page) -> str:
    """The Markdown of a page, which mkdocstrings fills."""
    parts = [f"# `{page.module}`", _directive(page.module, 2, members=False, show_root_heading=False), page.remark]
    for title, names in page.sections.items():
        parts.append(f"## {title}")
        for name in names:
            inherited = {"inherited_members": True} if name in page.inherits else {}
            parts.append(_directive(f"{page.module}.{name}", 3, **inherited))
    return "\n\n".join(part for part in parts if part) + "\n"


def _directive(path: str, level: int, **options: bool) -> str:
    lines = [f"::: {path}", "    options:", f"      heading_level: {level}"]
    return "\n".join([*lines, *(f"      {name}: {str(value).lower()}" for name, value in options.items())])
