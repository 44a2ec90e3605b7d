"""The parameters of all estimators, with Horovod's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import farandole
from pyspark.ml.param import Param, Params, TypeConverters

from farandole_spark._private import UNDEFINED, set_defaults, set_params
from farandole_spark.ml._accessors import Getter, Setter

if TYPE_CHECKING:
    from typing_extensions import Self

    from farandole_spark.ml.backend import Backend
    from farandole_spark.ml.store import Store


INT, BOOL, TEXT = TypeConverters.toInt, TypeConverters.toBoolean, TypeConverters.toString
NAMES, FLOATS = TypeConverters.toListString, TypeConverters.toListFloat


class Arguments(TypedDict, total=False):
    """The keyword arguments of all estimators; `EstimatorParams` says what they mean."""

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


class EstimatorParams(Params):  # type: ignore[misc]  # PySpark is not read
    """The parameters of an estimator. Each has a getter, and a setter that returns the estimator."""

    num_proc = Param(UNDEFINED, "num_proc", "number of ranks; by default all slots", INT)
    setNumProc, getNumProc = Setter[int | None]("num_proc"), Getter[int | None]("num_proc")
    model = Param(UNDEFINED, "model", "the model")
    setModel, getModel = Setter[Any]("model"), Getter[Any]("model")
    data_module = Param(UNDEFINED, "data_module", "not taken, as data are read in one way")
    setDataModule, getDataModule = Setter[Any]("data_module"), Getter[Any]("data_module")
    backend = Param(UNDEFINED, "backend", "who runs the ranks; by default Spark")
    setBackend, getBackend = Setter[Any]("backend"), Getter[Any]("backend")
    store = Param(UNDEFINED, "store", "where training data and runs are kept")
    setStore, getStore = Setter[Any]("store"), Getter[Any]("store")
    optimizer = Param(UNDEFINED, "optimizer", "the optimizer")
    setOptimizer, getOptimizer = Setter[Any]("optimizer"), Getter[Any]("optimizer")
    loss = Param(UNDEFINED, "loss", "the loss, or one for each label")
    setLoss, getLoss = Setter[Any]("loss"), Getter[Any]("loss")
    loss_weights = Param(UNDEFINED, "loss_weights", "a weight for each label's loss", FLOATS)
    setLossWeights = Setter[list[float] | None]("loss_weights")
    getLossWeights = Getter[list[float] | None]("loss_weights")
    sample_weight_col = Param(UNDEFINED, "sample_weight_col", "the column with the weights of rows", TEXT)
    setSampleWeightCol = Setter[str | None]("sample_weight_col")
    getSampleWeightCol = Getter[str | None]("sample_weight_col")
    metrics = Param(UNDEFINED, "metrics", "what is measured beside the loss")
    setMetrics, getMetrics = Setter[Any]("metrics"), Getter[Any]("metrics")
    gradient_compression = Param(UNDEFINED, "gradient_compression", "how gradients are compressed between ranks")
    setGradientCompression = Setter[Any]("gradient_compression")
    getGradientCompression = Getter[Any]("gradient_compression")
    compress_sparse_cols = Param(UNDEFINED, "compress_sparse_cols", "without effect: all vectors are dense", BOOL)
    setCompressSparseCols = Setter[bool]("compress_sparse_cols")
    getCompressSparseCols = Getter[bool]("compress_sparse_cols")
    feature_cols = Param(UNDEFINED, "feature_cols", "the columns of features", NAMES)
    setFeatureCols, getFeatureCols = Setter[list[str]]("feature_cols"), Getter[list[str]]("feature_cols")
    label_cols = Param(UNDEFINED, "label_cols", "the columns of labels", NAMES)
    setLabelCols, getLabelCols = Setter[list[str]]("label_cols"), Getter[list[str]]("label_cols")
    continuous_cols = Param(UNDEFINED, "continuous_cols", "without effect", NAMES)
    setContinuousCols = Setter[list[str] | None]("continuous_cols")
    getContinuousCols = Getter[list[str] | None]("continuous_cols")
    categorical_cols = Param(UNDEFINED, "categorical_cols", "without effect", NAMES)
    setCategoricalCols = Setter[list[str] | None]("categorical_cols")
    getCategoricalCols = Getter[list[str] | None]("categorical_cols")
    validation = Param(UNDEFINED, "validation", "a share of the rows, or a column that is above 0 for these")
    setValidation, getValidation = Setter[float | str | None]("validation"), Getter[float | str | None]("validation")
    callbacks = Param(UNDEFINED, "callbacks", "callbacks of the framework")
    setCallbacks, getCallbacks = Setter[Any]("callbacks"), Getter[Any]("callbacks")
    batch_size = Param(UNDEFINED, "batch_size", "rows of a batch of each rank", INT)
    setBatchSize, getBatchSize = Setter[int]("batch_size"), Getter[int]("batch_size")
    val_batch_size = Param(UNDEFINED, "val_batch_size", "the same for validation", INT)
    setValBatchSize, getValBatchSize = Setter[int | None]("val_batch_size"), Getter[int | None]("val_batch_size")
    epochs = Param(UNDEFINED, "epochs", "passes over the data", INT)
    setEpochs, getEpochs = Setter[int]("epochs"), Getter[int]("epochs")
    train_steps_per_epoch = Param(UNDEFINED, "train_steps_per_epoch", "batches of an epoch; by default all", INT)
    setTrainStepsPerEpoch = Setter[int | None]("train_steps_per_epoch")
    getTrainStepsPerEpoch = Getter[int | None]("train_steps_per_epoch")
    validation_steps_per_epoch = Param(UNDEFINED, "validation_steps_per_epoch", "the same for validation", INT)
    setValidationStepsPerEpoch = Setter[int | None]("validation_steps_per_epoch")
    getValidationStepsPerEpoch = Getter[int | None]("validation_steps_per_epoch")
    verbose = Param(UNDEFINED, "verbose", "0 is silent, 1 reports each epoch", INT)
    setVerbose, getVerbose = Setter[int]("verbose"), Getter[int]("verbose")
    random_seed = Param(UNDEFINED, "random_seed", "of order, split and framework; by default from run_id", INT)
    setRandomSeed, getRandomSeed = Setter[int | None]("random_seed"), Getter[int | None]("random_seed")
    shuffle_buffer_size = Param(
        UNDEFINED,
        "shuffle_buffer_size",
        "rows shuffled together; by default 16 MiB of them",
        INT,
    )
    setShufflingBufferSize = Setter[int | None]("shuffle_buffer_size")
    getShufflingBufferSize = Getter[int | None]("shuffle_buffer_size")
    shuffle = Param(UNDEFINED, "shuffle", "read the rows of each epoch in another order", BOOL)
    setShuffle, getShuffle = Setter[bool]("shuffle"), Getter[bool]("shuffle")
    partitions_per_process = Param(UNDEFINED, "partitions_per_process", "repartition to so many for each rank", INT)
    setPartitionsPerProcess = Setter[int | None]("partitions_per_process")
    getPartitionsPerProcess = Getter[int | None]("partitions_per_process")
    run_id = Param(UNDEFINED, "run_id", "names the run, which is resumed if it exists", TEXT)
    setRunId, getRunId = Setter[str | None]("run_id"), Getter[str | None]("run_id")
    transformation_fn = Param(UNDEFINED, "transformation_fn", "changes each row, a dict of NumPy values by column")
    setTransformationFn, getTransformationFn = Setter[Any]("transformation_fn"), Getter[Any]("transformation_fn")
    transformation_edit_fields = Param(UNDEFINED, "transformation_edit_fields", "without effect")
    setTransformationEditFields = Setter[Any]("transformation_edit_fields")
    getTransformationEditFields = Getter[Any]("transformation_edit_fields")
    transformation_removed_fields = Param(UNDEFINED, "transformation_removed_fields", "without effect")
    setTransformationRemovedFields = Setter[Any]("transformation_removed_fields")
    getTransformationRemovedFields = Getter[Any]("transformation_removed_fields")
    train_reader_num_workers = Param(UNDEFINED, "train_reader_num_workers", "without effect", INT)
    setTrainReaderNumWorker = Setter[int]("train_reader_num_workers")
    getTrainReaderNumWorker = Getter[int]("train_reader_num_workers")
    val_reader_num_workers = Param(UNDEFINED, "val_reader_num_workers", "without effect", INT)
    setValReaderNumWorker = Setter[int]("val_reader_num_workers")
    getValReaderNumWorker = Getter[int]("val_reader_num_workers")
    reader_pool_type = Param(UNDEFINED, "reader_pool_type", "without effect", TEXT)
    setReaderPoolType, getReaderPoolType = Setter[str]("reader_pool_type"), Getter[str]("reader_pool_type")
    label_shapes = Param(UNDEFINED, "label_shapes", "the shape of each label's batch; by default the output's")
    setLabelShapes, getLabelShapes = Setter[Any]("label_shapes"), Getter[Any]("label_shapes")
    inmemory_cache_all = Param(UNDEFINED, "inmemory_cache_all", "keep the rank's share in memory", BOOL)
    setInMemoryCacheAll, getInMemoryCacheAll = Setter[bool]("inmemory_cache_all"), Getter[bool]("inmemory_cache_all")
    use_gpu = Param(UNDEFINED, "use_gpu", "train on a GPU, where the rank has one", BOOL)
    setUseGpu, getUseGpu = Setter[bool]("use_gpu"), Getter[bool]("use_gpu")
    mp_start_method = Param(UNDEFINED, "mp_start_method", "without effect")
    setMpStartMethod, getMpStartMethod = Setter[Any]("mp_start_method"), Getter[Any]("mp_start_method")
    backward_passes_per_step = Param(UNDEFINED, "backward_passes_per_step", "batches whose gradients are added up", INT)
    setBackwardPassesPerStep = Setter[int]("backward_passes_per_step")
    getBackwardPassesPerStep = Getter[int]("backward_passes_per_step")

    def __init__(self) -> None:
        super().__init__()
        set_defaults(
            self,
            **{param.name: None for param in self.params}
            | {"metrics": [], "callbacks": [], "batch_size": 32, "epochs": 1, "verbose": 1}
            | {"compress_sparse_cols": False, "shuffle": True, "inmemory_cache_all": False, "use_gpu": True}
            | {"train_reader_num_workers": 2, "val_reader_num_workers": 2, "reader_pool_type": "thread"}
            | {"backward_passes_per_step": 1},
        )

    def setParams(self, **values: Any) -> Self:
        """Set parameters by their names; None leaves one as it is. Raises ArgumentTypeError for an unknown name."""
        if unknown := [name for name in values if not self.hasParam(name)]:
            raise farandole.ArgumentTypeError(f"{type(self).__name__} has no parameter {unknown[0]!r}.")
        return set_params(self, **{name: value for name, value in values.items() if value is not None})
