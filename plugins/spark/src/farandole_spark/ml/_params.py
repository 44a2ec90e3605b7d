"""The parameters of all estimators, with Horovod's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from farandole_spark._private import set_defaults
from farandole_spark.ml._accessors import (
    ANY,
    BOOL,
    FLOATS_OR_NONE,
    INT,
    INT_OR_NONE,
    NAMES,
    NAMES_OR_NONE,
    TEXT_OR_NONE,
    Parameters,
    param,
)

if TYPE_CHECKING:
    from farandole_spark.ml.backend import Backend
    from farandole_spark.ml.store import Store


class Arguments(TypedDict, total=False):
    """The keyword arguments of all estimators. `EstimatorParams` describes them."""

    num_proc: int | None
    data_module: Any
    model: Any
    backend: Backend | None
    store: Store
    optimizer: Any
    loss: Any
    loss_weights: Sequence[float] | None
    sample_weight_col: str | None
    metrics: Sequence[Any] | None
    gradient_compression: Any
    feature_cols: Sequence[str]
    label_cols: Sequence[str]
    validation: float | str | None
    callbacks: Sequence[Any] | None
    batch_size: int | None
    val_batch_size: int | None
    epochs: int | None
    train_steps_per_epoch: int | None
    validation_steps_per_epoch: int | None
    verbose: int | None
    random_seed: int | None
    shuffle_buffer_size: int | None
    shuffle: bool
    partitions_per_process: int | None
    run_id: str | None
    transformation_fn: Callable[[dict[str, Any]], dict[str, Any]] | None
    train_reader_num_workers: int | None
    val_reader_num_workers: int | None
    reader_pool_type: str | None
    label_shapes: Sequence[Sequence[int]] | None
    inmemory_cache_all: bool
    use_gpu: bool
    mp_start_method: str | None


class EstimatorParams(Parameters):
    """The parameters of an estimator. Each has a getter, and a setter that returns the estimator."""

    num_proc, setNumProc, getNumProc = param("num_proc", INT_OR_NONE, "number of ranks; by default all slots")
    model, setModel, getModel = param("model", ANY, "the model")
    data_module, setDataModule, getDataModule = param("data_module", ANY, "not taken, as data are read in one way")
    backend, setBackend, getBackend = param("backend", ANY, "who runs the ranks; by default Spark")
    store, setStore, getStore = param("store", ANY, "where training data and runs are kept")
    optimizer, setOptimizer, getOptimizer = param("optimizer", ANY, "the optimizer")
    loss, setLoss, getLoss = param("loss", ANY, "the loss, or one for each label")
    loss_weights, setLossWeights, getLossWeights = param("loss_weights", FLOATS_OR_NONE, "a weight for each label")
    sample_weight_col, setSampleWeightCol, getSampleWeightCol = param(
        "sample_weight_col", TEXT_OR_NONE, "the column with weights"
    )
    metrics, setMetrics, getMetrics = param("metrics", ANY, "what is measured beside the loss")
    gradient_compression, setGradientCompression, getGradientCompression = param(
        "gradient_compression", ANY, "how gradients are compressed between ranks"
    )
    compress_sparse_cols, setCompressSparseCols, getCompressSparseCols = param("compress_sparse_cols", BOOL)
    feature_cols, setFeatureCols, getFeatureCols = param("feature_cols", NAMES, "the columns of features")
    label_cols, setLabelCols, getLabelCols = param("label_cols", NAMES, "the columns of labels")
    continuous_cols, setContinuousCols, getContinuousCols = param("continuous_cols", NAMES_OR_NONE)
    categorical_cols, setCategoricalCols, getCategoricalCols = param("categorical_cols", NAMES_OR_NONE)
    validation, setValidation, getValidation = param("validation", ANY, "a share of the rows, or the name of a column")
    callbacks, setCallbacks, getCallbacks = param("callbacks", ANY, "callbacks of the framework")
    batch_size, setBatchSize, getBatchSize = param("batch_size", INT, "rows of a batch of each rank")
    val_batch_size, setValBatchSize, getValBatchSize = param("val_batch_size", INT_OR_NONE, "the same for validation")
    epochs, setEpochs, getEpochs = param("epochs", INT, "passes over the data")
    train_steps_per_epoch, setTrainStepsPerEpoch, getTrainStepsPerEpoch = param(
        "train_steps_per_epoch", INT_OR_NONE, "batches of an epoch; by default all"
    )
    validation_steps_per_epoch, setValidationStepsPerEpoch, getValidationStepsPerEpoch = param(
        "validation_steps_per_epoch", INT_OR_NONE, "the same for validation"
    )
    verbose, setVerbose, getVerbose = param("verbose", INT, "0 is silent, 1 reports each epoch")
    random_seed, setRandomSeed, getRandomSeed = param("random_seed", INT_OR_NONE, "by default from run_id")
    shuffle_buffer_size, setShufflingBufferSize, getShufflingBufferSize = param(
        "shuffle_buffer_size", INT_OR_NONE, "rows shuffled together"
    )
    shuffle, setShuffle, getShuffle = param("shuffle", BOOL, "read the rows of each epoch in another order")
    partitions_per_process, setPartitionsPerProcess, getPartitionsPerProcess = param(
        "partitions_per_process", INT_OR_NONE, "repartition to so many for each rank"
    )
    run_id, setRunId, getRunId = param("run_id", TEXT_OR_NONE, "names the run, which is resumed if it exists")
    transformation_fn, setTransformationFn, getTransformationFn = param(
        "transformation_fn", ANY, "changes each row, a dict of NumPy values by column"
    )
    transformation_edit_fields, setTransformationEditFields, getTransformationEditFields = param(
        "transformation_edit_fields", ANY
    )
    transformation_removed_fields, setTransformationRemovedFields, getTransformationRemovedFields = param(
        "transformation_removed_fields", ANY
    )
    train_reader_num_workers, setTrainReaderNumWorker, getTrainReaderNumWorker = param("train_reader_num_workers", INT)
    val_reader_num_workers, setValReaderNumWorker, getValReaderNumWorker = param("val_reader_num_workers", INT)
    reader_pool_type, setReaderPoolType, getReaderPoolType = param("reader_pool_type", TEXT_OR_NONE)
    label_shapes, setLabelShapes, getLabelShapes = param(
        "label_shapes", ANY, "the shape of each label's batch; by default the output's"
    )
    inmemory_cache_all, setInMemoryCacheAll, getInMemoryCacheAll = param(
        "inmemory_cache_all", BOOL, "keep the rank's share in memory"
    )
    use_gpu, setUseGpu, getUseGpu = param("use_gpu", BOOL, "train on a GPU, where the rank has one")
    mp_start_method, setMpStartMethod, getMpStartMethod = param("mp_start_method", ANY)
    backward_passes_per_step, setBackwardPassesPerStep, getBackwardPassesPerStep = param(
        "backward_passes_per_step", INT, "batches whose gradients are added up"
    )

    def __init__(self) -> None:
        super().__init__()
        set_defaults(
            self,
            **{"metrics": [], "callbacks": [], "batch_size": 32, "epochs": 1, "verbose": 1}
            | {"compress_sparse_cols": False, "shuffle": True, "inmemory_cache_all": False, "use_gpu": True}
            | {"train_reader_num_workers": 2, "val_reader_num_workers": 2, "reader_pool_type": "thread"}
            | {"backward_passes_per_step": 1},
        )
