"""The public names of Horovod 0.28.1, by module."""

import importlib

WORLD = """init shutdown is_initialized start_timeline stop_timeline size rank local_size local_rank cross_size
cross_rank mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built cuda_built
rocm_built ProcessSet global_process_set add_process_set remove_process_set"""
OPS = "Average Sum Adasum Min Max Product"
TORCH = """allreduce allreduce_async allreduce_ allreduce_async_ grouped_allreduce grouped_allreduce_async
grouped_allreduce_ grouped_allreduce_async_ sparse_allreduce_async allgather allgather_async grouped_allgather
grouped_allgather_async broadcast broadcast_async broadcast_ broadcast_async_ alltoall alltoall_async reducescatter
reducescatter_async grouped_reducescatter grouped_reducescatter_async join barrier poll synchronize"""
TORCH_OBJECTS = "allgather_object broadcast_object broadcast_optimizer_state broadcast_parameters"
TENSORFLOW = "allgather grouped_allgather broadcast broadcast_ alltoall join"
TENSORFLOW_OPS = "rank_op local_rank_op size_op local_size_op process_set_included_op"
TENSORFLOW_OBJECTS = "allgather_object broadcast_object broadcast_object_fn broadcast_variables"
KERAS = """DistributedOptimizer PartialDistributedOptimizer broadcast_global_variables allreduce allgather broadcast
reducescatter load_model callbacks Compression Average Sum"""
CALLBACKS = """BroadcastGlobalVariablesCallback MetricAverageCallback LearningRateScheduleCallback
LearningRateWarmupCallback BestModelCheckpoint"""
MXNET = """allgather grouped_allgather allreduce allreduce_ grouped_allreduce grouped_allreduce_ alltoall broadcast
broadcast_ reducescatter grouped_reducescatter"""
OF_KERAS_STATES = "run KerasState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback"
COMPRESSION = "Compression Compressor NoneCompressor FP16Compressor"
KERAS_WORLD = " ".join(WORLD.split()[: WORLD.split().index("ProcessSet")])

OF_TORCH = {
    "horovod.torch": f"""{WORLD} {OPS} {TORCH} {TORCH_OBJECTS} Compression DistributedOptimizer SyncBatchNorm mpi_ops
    HorovodInternalError elastic""",
    "horovod.torch.mpi_ops": f"{WORLD} {OPS} {TORCH} is_homogeneous Compression handle_average_backwards_compatibility",
    "horovod.torch.elastic": "run TorchState ElasticSampler ObjectState",
    "horovod.torch.elastic.sampler": "ElasticSampler",
    "horovod.torch.elastic.state": """TorchState StateHandler ModelStateHandler OptimizerStateHandler
    SamplerStateHandler get_handler_registry set_handler_registry""",
    "horovod.torch.functions": TORCH_OBJECTS,
    "horovod.torch.compression": COMPRESSION,
    "horovod.torch.optimizer": "DistributedOptimizer _DistributedOptimizer",
    "horovod.torch.sync_batch_norm": "SyncBatchNorm",
}
OF_TENSORFLOW = {
    "horovod.tensorflow": f"""{WORLD} {OPS} {TENSORFLOW} {TENSORFLOW_OPS} {TENSORFLOW_OBJECTS} allreduce reducescatter
    grouped_allreduce grouped_reducescatter is_homogeneous broadcast_global_variables BroadcastGlobalVariablesHook
    DistributedOptimizer DistributedGradientTape PartialDistributedGradientTape SyncBatchNormalization Compression
    gpu_available check_num_rank_power_of_2 handle_average_backwards_compatibility _executing_eagerly""",
    "horovod.tensorflow.mpi_ops": f"{WORLD} {OPS} {TENSORFLOW} {TENSORFLOW_OPS} is_homogeneous",
    "horovod.tensorflow.elastic": "run TensorFlowState TensorFlowKerasState",
    "horovod.tensorflow.functions": TENSORFLOW_OBJECTS,
    "horovod.tensorflow.compression": COMPRESSION,
    "horovod.tensorflow.sync_batch_norm": "SyncBatchNormalization",
    "horovod.tensorflow.util": "_executing_eagerly _make_subgraph _cache vars_to_refs refs_to_vars",
    "horovod.tensorflow.keras": f"{WORLD} {KERAS}",
    "horovod.tensorflow.keras.callbacks": CALLBACKS,
    "horovod.tensorflow.keras.elastic": OF_KERAS_STATES,
    "horovod.keras": f"{KERAS_WORLD} {KERAS} Adasum global_process_set",
    "horovod.keras.callbacks": CALLBACKS,
    "horovod.keras.elastic": OF_KERAS_STATES,
}
OF_MXNET = {
    "horovod.mxnet": f"""{WORLD} {OPS} {MXNET} allgather_object broadcast_object DistributedOptimizer DistributedTrainer
    broadcast_parameters Compression""",
    "horovod.mxnet.mpi_ops": f"{WORLD} {OPS} {MXNET} handle_average_backwards_compatibility",
    "horovod.mxnet.functions": "allgather_object broadcast_object",
    "horovod.mxnet.compression": COMPRESSION,
}
OF_ALL = {
    "horovod": "run __version__",
    "horovod.runner": "run",
    "horovod.runner.launch": "parse_args run_commandline",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.elastic": "State ObjectState",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError",
    "horovod.common.process_sets": "ProcessSet global_process_set add_process_set remove_process_set",
    "horovod.common.util": """extension_available gpu_available gloo_built mpi_built nccl_built ddl_built ccl_built env
    split_list check_installed_version is_version_greater_equal_than is_iterable _cache num_rank_is_power_2""",
}


def missing(modules: dict[str, str]) -> list[str]:
    """The names that are not there, as module.name."""
    return [f"{name}.{each}" for name, names in modules.items() for each in names.split() if not _has(name, each)]


def _has(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name)


def of_another_package(modules: dict[str, str], own: set[str]) -> list[str]:
    """Functions and classes that are not Farandole's: written in `horovod`, though they are not among `own`."""
    found = []
    for module, names in modules.items():
        for name in names.split():
            value = getattr(importlib.import_module(module), name)
            origin = getattr(value, "__module__", "farandole")
            if callable(value) and origin.partition(".")[0] == "horovod" and name not in own:
                found.append(f"{module}.{name}")
    return found
