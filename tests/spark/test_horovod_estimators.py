"""horovod.spark's estimators: modules, names and arguments of 0.28.1."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

# Of 0.28.1, by their signatures. What all estimators take, then what one takes beside it.
COMMON = """num_proc data_module model backend store optimizer loss metrics loss_weights sample_weight_col
gradient_compression feature_cols validation label_cols callbacks batch_size val_batch_size epochs verbose random_seed
shuffle_buffer_size shuffle partitions_per_process run_id train_steps_per_epoch validation_steps_per_epoch
transformation_fn train_reader_num_workers val_reader_num_workers reader_pool_type label_shapes inmemory_cache_all
use_gpu mp_start_method"""
OF_KERAS = "custom_objects continuous_cols categorical_cols checkpoint_callback backend_env"
OF_TORCH = """loss_constructors continuous_cols categorical_cols input_shapes train_minibatch_fn
backward_passes_per_step"""
OF_LIGHTNING = """loss_constructors input_shapes train_minibatch_fn transformation_edit_fields
transformation_removed_fields trainer_args num_gpus logger log_every_n_steps loader_num_epochs terminate_on_nan profiler
debug_data_loader train_async_data_loader_queue_size val_async_data_loader_queue_size"""
ACCESSORS = """NumProc Model Backend Store Loss LossWeights SampleWeightCol Metrics FeatureCols LabelCols ContinuousCols
CategoricalCols Validation Callbacks BatchSize ValBatchSize Epochs TrainStepsPerEpoch ValidationStepsPerEpoch Verbose
GradientCompression CompressSparseCols RandomSeed ShufflingBufferSize Shuffle Optimizer PartitionsPerProcess RunId
TransformationFn TransformationEditFields TransformationRemovedFields TrainReaderNumWorker ValReaderNumWorker
ReaderPoolType LabelShapes InMemoryCacheAll UseGpu MpStartMethod BackwardPassesPerStep DataModule"""
OF_STORE = """is_parquet_dataset get_parquet_dataset get_train_data_path get_val_data_path get_test_data_path
saving_runs get_runs_path get_run_path get_checkpoint_path get_checkpoints get_logs_path get_checkpoint_filename
get_logs_subdir exists read write_text get_local_output_dir_fn sync_fn create get_localized_path get_full_path fs"""


@pytest.mark.parametrize(
    ("module", "name", "own"),
    [
        ("keras", "KerasEstimator", OF_KERAS),
        ("torch", "TorchEstimator", OF_TORCH),
        ("lightning", "TorchEstimator", OF_LIGHTNING),
    ],
)
def test_estimators_have_horovods_arguments_and_accessors(module: str, name: str, own: str) -> None:
    package = importlib.import_module(f"horovod.spark.{module}")
    kind = getattr(package, name)
    assert kind is getattr(importlib.import_module(f"horovod.spark.{module}.estimator"), name)
    estimator = kind(**dict.fromkeys(f"{COMMON} {own}".split()))  # each without a value
    with pytest.raises(TypeError, match="has no parameter 'no_such_name'"):
        kind(no_such_name=1)
    accessors = [f"{verb}{each}" for each in ACCESSORS.split() for verb in ("get", "set")]
    assert [each for each in accessors if not hasattr(estimator, each)] == []
    model = getattr(package, name.replace("Estimator", "Model"))()
    accessors = [f"get{each}" for each in ("History", "Model", "FeatureColumns", "LabelColumns", "RunId", "OutputCols")]
    accessors += ["setOutputCols", "setLabelColoumns", "transform", "save", "load", "write", "read"]
    assert [each for each in accessors if not hasattr(model, each)] == []


def test_defaults_are_horovods() -> None:
    from horovod.spark.torch import TorchEstimator

    estimator = TorchEstimator()
    assert (estimator.getBatchSize(), estimator.getEpochs(), estimator.getVerbose()) == (32, 1, 1)
    assert estimator.getShuffle() and estimator.getUseGpu() and not estimator.getInMemoryCacheAll()
    assert estimator.getReaderPoolType() == "thread" and estimator.getBackwardPassesPerStep() == 1


def test_stores_have_horovods_names(tmp_path: Path) -> None:
    from horovod.spark.common import store as stores

    names = "Store AbstractFilesystemStore FilesystemStore LocalStore HDFSStore DBFSLocalStore S3Store"
    assert [each for each in names.split() if not hasattr(stores, each)] == []
    store = stores.Store.create(str(tmp_path))
    assert [each for each in OF_STORE.split() if not hasattr(store, each)] == []
    assert isinstance(store, stores.LocalStore)


def test_the_backend_has_the_arguments_of_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from horovod.spark.common.backend import Backend, LocalBackend, SparkBackend

    seen: dict[str, Any] = {}

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        seen.update(args=args, **kwargs)
        return [1]

    monkeypatch.setattr(SparkBackend, "_run", staticmethod(run))
    backend = SparkBackend(num_proc=3, env={"A": "1", "B": "1"}, verbose=2, nics="eth0")
    assert isinstance(backend, Backend) and backend.num_processes() == 3
    assert backend.run(len, ([],), env={"B": "2"}) == [1]
    assert seen == {"args": (len, ([],), None, 3), "env": {"A": "1", "B": "2"}, "verbose": 2, "nics": "eth0"}
    assert LocalBackend(2).num_processes() == 2
