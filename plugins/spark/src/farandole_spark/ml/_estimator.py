"""Base class of all estimators, which make a trained model from a DataFrame."""

from __future__ import annotations

import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import farandole
from pyspark.ml import Estimator

from farandole_spark.ml import _checkpoints
from farandole_spark.ml._checkpoints import Identity
from farandole_spark.ml._columns import Column
from farandole_spark.ml._model import TrainedModel
from farandole_spark.ml._params import EstimatorParams
from farandole_spark.ml._parquet import data_in_store
from farandole_spark.ml._persistence import Persistent
from farandole_spark.ml._prepare import Request, prepare
from farandole_spark.ml._reader import DataSet
from farandole_spark.ml._training import Trained, Training
from farandole_spark.ml.backend import Backend, SparkBackend
from farandole_spark.ml.store import Store

Job = tuple[Callable[..., Trained | None], Any, Mapping[str, str]]
"""A function of a `Training` and a plan, which returns the result on rank 0; the plan; variables for the ranks."""
_MAY_DIFFER = (
    "backend backend_env epochs inmemory_cache_all log_every_n_steps logger metrics num_gpus num_proc profiler "
    "reader_pool_type run_id store train_reader_num_workers use_gpu val_batch_size val_reader_num_workers "
    "validation_steps_per_epoch verbose"
).split()
"""Parameters without influence on the model, or with one that a resume allows for."""
_AT_LEAST_ONE = (
    "num_proc batch_size val_batch_size epochs backward_passes_per_step train_steps_per_epoch "
    "validation_steps_per_epoch shuffle_buffer_size partitions_per_process"
).split()


class FrameworkEstimator(Estimator, EstimatorParams, Persistent):  # type: ignore[misc]  # PySpark is not read
    """An estimator whose `fit` trains on several ranks."""

    framework = ""

    def check_model(self, columns: Mapping[str, Column]) -> None:
        """Compare the columns with the model. Raises ArgumentError if they do not fit."""
        raise NotImplementedError

    def job(self, training: Training) -> Job:
        """What the ranks run."""
        raise NotImplementedError

    def trained_model(self, trained: Trained, run_id: str, columns: Mapping[str, Column]) -> TrainedModel:
        """Return the transformer with the trained model."""
        raise NotImplementedError

    def fit_on_parquet(self, params: Mapping[Any, Any] | None = None, dataset_idx: int | None = None) -> TrainedModel:
        """Train on the Parquet files in the store's folders for training and validation.

        Args:
            params: parameters for this call only.
            dataset_idx: number of the data; see `Store.get_train_data_path`.

        Returns:
            The trained model.

        Raises:
            Exception: see `fit`.
        """
        if params:
            return self.copy(params).fit_on_parquet(None, dataset_idx)  # type: ignore[no-any-return]
        store = self._checked_store()
        with_validation, may_be_any = bool(self._checked_validation()), self.getTransformationFn() is not None
        train, validation = data_in_store(store, dataset_idx, self._column_names(), with_validation, may_be_any)
        return self._fit_on_data(store, self._run_id(), train, validation)

    def described(self, value: Any) -> Any:
        """Describe a parameter's value as JSON that is the same in another process, without weights and addresses."""
        if isinstance(value, Mapping):
            return {str(name): self.described(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.described(each) for each in value]
        if value is None or isinstance(value, str | int | float):
            return value
        if hasattr(value, "__qualname__"):
            return f"{value.__module__}.{value.__qualname__}"
        text = repr(value)
        return type(value).__qualname__ if " at 0x" in text else text

    def _fit(self, dataset: Any) -> TrainedModel:
        store, run_id, token = self._checked_store(), self._run_id(), uuid.uuid4().hex
        partitions = self.getPartitionsPerProcess()
        request = Request(
            names=tuple(self._column_names()),
            validation=self._checked_validation(),
            seed=self._seed(run_id),
            partitions=partitions * self._get_or_create_backend().num_processes() if partitions else None,
            may_be_any=self.getTransformationFn() is not None,
        )
        try:
            train, validation = prepare(dataset, request, store, token)
            return self._fit_on_data(store, run_id, train, validation)
        finally:
            store.delete(store.get_train_data_path(token))
            store.delete(store.get_val_data_path(token))
            _checkpoints.clean(store, run_id)

    def _fit_on_data(self, store: Store, run_id: str, train: DataSet, validation: DataSet) -> TrainedModel:
        columns = {column.name: column for column in train.columns}
        if self.getTransformationFn() is None:
            self.check_model(columns)
        shaping = (each for each in self.params if each.name not in _MAY_DIFFER)
        identity = Identity(train.facts, {each.name: self.described(self.getOrDefault(each)) for each in shaping})
        _checkpoints.check(store, run_id, identity, self.getEpochs())
        training = Training(
            store=store,
            run_id=run_id,
            identity=identity,
            train=train,
            validation=validation,
            features=tuple(self.getFeatureCols()),
            labels=tuple(self.getLabelCols()),
            weight=self.getSampleWeightCol(),
            batch_size=self.getBatchSize(),
            validation_batch_size=self.getValBatchSize() or self.getBatchSize(),
            epochs=self.getEpochs(),
            steps=self.getTrainStepsPerEpoch(),
            validation_steps=self.getValidationStepsPerEpoch(),
            seed=self._seed(run_id),
            is_shuffled=self.getShuffle(),
            window_rows=self.getShufflingBufferSize(),
            kept={} if self.getInMemoryCacheAll() else None,
            transformation=self.getTransformationFn(),
            verbose=self.getVerbose(),
            use_gpu=self.getUseGpu(),
        )
        function, plan, variables = self.job(training)
        found = self._get_or_create_backend().run(function, (training, plan), env=variables)
        return self.trained_model(next(each for each in found if each is not None), run_id, columns)

    def _column_names(self) -> Sequence[str]:
        weight = self.getSampleWeightCol()
        return [*self.getFeatureCols(), *self.getLabelCols(), *([weight] if weight else [])]

    def _checked_store(self) -> Store:
        """Return the store. Raises ArgumentError if a parameter is missing or impossible."""
        for name in ("model", "feature_cols", "label_cols", "store"):
            if not self.isDefined(self.getParam(name)) or not self.getOrDefault(self.getParam(name)):
                hint = ": store=Store.create(path)" if name == "store" else ""
                raise farandole.ArgumentError(f"{type(self).__name__} needs the parameter {name}{hint}.")
        for name in [*_AT_LEAST_ONE, "random_seed"]:
            least = 1 if name in _AT_LEAST_ONE else 0
            if (value := self.getOrDefault(name)) is not None and value < least:
                raise farandole.ArgumentError(f"{name} must be at least {least}, not {value}.")
        if self.getDataModule() is not None:
            raise farandole.ArgumentError("data_module is not taken, as data are read in one way; leave it out.")
        if self.getBackend() is not None and self.getNumProc() is not None:
            raise farandole.ArgumentError("give num_proc or a backend, which has a number of its own; not both.")
        store = self.getStore()
        if not isinstance(store, Store):
            raise farandole.ArgumentTypeError(f"store must be a Store, not {type(store).__name__}; use Store.create.")
        return store

    def _checked_validation(self) -> float | str | None:
        value = self.getValidation()
        if value is None or isinstance(value, str):
            return value or None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise farandole.ArgumentError(
                f"validation must be a share of the rows in [0, 1), or the name of a column, not {value!r:.60}."
            )
        return float(value) or None

    def _get_or_create_backend(self) -> Backend:
        """Return the backend that runs the ranks. Derived estimators may override this, as in Horovod."""
        backend = self.getBackend()
        return backend if backend is not None else SparkBackend(self.getNumProc())

    def _run_id(self) -> str:
        return self.getRunId() or f"{self.framework}_{time.time():.0f}_{uuid.uuid4().hex[:8]}"

    def _seed(self, run_id: str) -> int:
        seed = self.getRandomSeed()
        return zlib.crc32(run_id.encode()) if seed is None else int(seed)
