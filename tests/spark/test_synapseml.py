"""What `synapse.ml.dl` of SynapseML 1.1.3 asks of Horovod, by a classifier that is built like those of SynapseML.

The package itself needs PyTorch Lightning 1.5 to 1.7 and downloads weights. From `horovod` it imports `__version__`,
`SparkBackend`, and Lightning's `TorchEstimator` and `TorchModel`, from which it derives its own classes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import horovod
import numpy as np
import pytest
import pytorch_lightning
import torch
from farandole_spark.ml.store import Store
from horovod.spark.common.backend import SparkBackend
from horovod.spark.lightning import TorchEstimator, TorchModel
from pyspark.ml.param.shared import HasPredictionCol, Param, Params, TypeConverters
from torch.nn import functional

# What its classifiers take beside their own arguments, with their defaults.
TAKEN = {"verbose": 1, "inmemory_cache_all": False, "log_every_n_steps": 50, "terminate_on_nan": False}
TAKEN |= {"debug_data_loader": False, "use_gpu": True}
NONE = """num_proc backend store metrics loss_weights sample_weight_col gradient_compression input_shapes validation
callbacks batch_size val_batch_size epochs random_seed shuffle_buffer_size partitions_per_process run_id
train_minibatch_fn train_steps_per_epoch validation_steps_per_epoch transformation_fn transformation_edit_fields
transformation_removed_fields train_reader_num_workers trainer_args val_reader_num_workers reader_pool_type label_shapes
num_gpus logger data_module loader_num_epochs profiler train_async_data_loader_queue_size
val_async_data_loader_queue_size mp_start_method"""

COLUMNS = {"label_col": "label", "image_col": "image", "prediction_col": "prediction"}


def catching_keywords(init: Callable[..., None]) -> Callable[..., None]:
    """Notes what the caller gave, apart from defaults."""

    @functools.wraps(init)
    def noting(self: Any, **given: Any) -> None:
        self._kwargs = given
        init(self, **given)

    return noting


class HasColumns(Params):  # type: ignore[misc]  # PySpark is not read
    label_col = Param(Params._dummy(), "label_col", "labels", typeConverter=TypeConverters.toString)
    image_col = Param(Params._dummy(), "image_col", "paths of images", typeConverter=TypeConverters.toString)
    prediction_col = Param(Params._dummy(), "prediction_col", "classes", typeConverter=TypeConverters.toString)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(**COLUMNS)


class Network(pytorch_lightning.LightningModule):  # type: ignore[misc]  # Lightning is not read
    def __init__(self, num_classes: int, input_shape: list[int], image_col: str, label_col: str) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, num_classes))
        for each in self.model[0].parameters():
            each.requires_grad = False  # SynapseML trains the last layers only
        self.save_hyperparameters()

    def forward(self, values: Any) -> Any:
        return self.model(values.float().reshape(-1, 4))

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(filter(lambda each: each.requires_grad, self.model.parameters()), lr=0.1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self._step(batch, "train_loss")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._step(batch, "val_loss")

    def _step(self, batch: Any, name: str) -> Any:
        inputs = batch[self.hparams["image_col"]].reshape(self.hparams["input_shape"])
        loss = functional.cross_entropy(self(inputs), batch[self.hparams["label_col"]].long())
        self.log(name, loss)
        return loss


class Classifier(TorchEstimator, HasColumns):
    num_classes = Param(Params._dummy(), "num_classes", "number of classes")

    @catching_keywords
    def __init__(self, num_classes: int | None = None, **given: Any) -> None:
        super().__init__()
        self._setDefault(num_classes=None, feature_cols=["image"], label_cols=["label"], **COLUMNS)
        self._set(**self._kwargs)
        if self.getInputShapes() is None:
            self.setInputShapes([[-1, 1, 2, 2]])
        image, label = self.getOrDefault(self.image_col), self.getOrDefault(self.label_col)
        self.setFeatureCols([image]).setLabelCols([label])
        self.setTransformationFn(lambda row: {image: np.load(row[image]), label: row[label]})
        self._set(model=Network(self.getOrDefault(self.num_classes) or 2, self.getInputShapes()[0], image, label))

    def _fit(self, dataset: Any) -> Any:
        return super()._fit(dataset)

    def _get_or_create_backend(self) -> Any:
        assert self.getBackend() is None and isinstance(self.getUseGpu(), bool)
        shown: dict[str, Any] = {"stdout": sys.stdout, "stderr": sys.stderr, "verbose": self.getVerbose()}
        return SparkBackend(self.getNumProc(), prefix_output_with_timestamp=True, **shown)

    def get_model_class(self) -> Any:
        return ClassifierModel

    def _get_model_kwargs(self, model: Any, history: Any, optimizer: Any, run_id: Any, metadata: Any) -> dict[str, Any]:
        return {
            "history": history,
            "model": model,
            "optimizer": optimizer,
            "input_shapes": self.getInputShapes(),
            "run_id": run_id,
            "_metadata": metadata,
            "loss": self.getLoss(),
            "loss_constructors": self.getLossConstructors(),
            **{each: self.getOrDefault(each) for each in COLUMNS},
        }


class ClassifierModel(TorchModel, HasColumns):
    @catching_keywords
    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._setDefault(optimizer=None, loss=None, loss_constructors=None, input_shapes=None)
        self._setDefault(feature_columns=["image"], label_columns=["label"], outputCols=["output"], **COLUMNS)
        self._set(**self._kwargs)

    def get_prediction_fn(self) -> Any:
        shape, image = self.getInputShapes()[0], self.getOrDefault(self.image_col)
        return lambda model, row: model(torch.tensor(np.load(row[image])).reshape(shape))

    def getOptimizer(self) -> None:
        return None

    def _transform(self, dataset: Any) -> Any:
        from pyspark.sql.functions import col, udf

        self.setFeatureColumns([self.getOrDefault(self.image_col)])
        self.setLabelColoumns([self.getOrDefault(self.label_col)])
        found = super()._transform(dataset)
        largest = udf(lambda values: float(np.argmax(values)), "double")
        return found.withColumn(self.getOrDefault(self.prediction_col), largest(col(self.getOutputCols()[0])))


def test_the_version_is_the_one_that_it_compares() -> None:
    assert horovod.__version__ == "0.28.1"


def test_its_classifiers_give_all_their_arguments() -> None:
    classifier = Classifier(**TAKEN, **dict.fromkeys(NONE.split()), prediction_col="other")
    assert [name for name in NONE.split() if not classifier.hasParam(name)] == []
    assert (classifier.getFeatureCols(), classifier.getOrDefault("prediction_col")) == (["image"], "other")
    assert classifier.getMetrics() is None  # as given


def test_defaults_of_other_base_classes_are_kept() -> None:
    class Named(TorchEstimator, HasPredictionCol):
        pass

    class NamedModel(TorchModel, HasPredictionCol):
        pass

    assert (Named().getPredictionCol(), NamedModel().getPredictionCol()) == ("prediction", "prediction")


@pytest.mark.timeout(300)
def test_a_classifier_like_its_own_is_trained_saved_and_loaded(warm: Any, tmp_path: Path) -> None:
    rows = []
    for number in range(40):
        label, path = number % 2, str(tmp_path / f"{number}.npy")
        np.save(path, np.full((1, 2, 2), 2.0 * label - 1) + number / 100)
        rows.append((path, label))
    frame = warm.createDataFrame(rows, "path string, kind int")
    columns = {"image_col": "path", "label_col": "kind", "prediction_col": "found"}
    classifier = Classifier(
        num_classes=2, num_proc=2, batch_size=5, epochs=5, store=Store.create(tmp_path / "store"), verbose=0, **columns
    )
    model = classifier.fit(frame)
    assert isinstance(model, ClassifierModel) and len(model.getHistory()) == 5
    model.save(str(tmp_path / "model"))
    for each in (model, ClassifierModel.load(str(tmp_path / "model"))):
        found = each.transform(frame)
        assert found.columns == ["path", "kind", "output", "found"]
        assert all(row["found"] == row["kind"] and len(row["output"]) == 2 for row in found.collect())
