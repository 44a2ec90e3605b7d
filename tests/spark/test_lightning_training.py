"""The training of the estimator of Lightning on two ranks, beside one in one process; without Spark."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import farandole
import lightning
import numpy as np
import pytest
import pytorch_lightning
import torch
from estimators import ROWS, WorldBackend, files_of, rows_of_step, write_columns
from farandole.testing import RanksFailed, preload
from farandole_spark.ml.lightning import TorchEstimator
from farandole_spark.ml.store import Store
from torch.nn import functional

preload("torch", "torch._dynamo")

BATCH, EPOCHS = 10, 2


class Steps:
    """What a LightningModule has, in whichever of Lightning's two packages."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))

    def forward(self, values: Any) -> Any:
        return self.layers(values)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = functional.mse_loss(self(batch["x"].float())[:, 0], batch["y"].float())
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = functional.mse_loss(self(batch["x"].float())[:, 0], batch["y"].float())
        self.log("val_loss", loss, sync_dist=True)


class Module(Steps, lightning.LightningModule):
    pass


class OldModule(Steps, pytorch_lightning.LightningModule):
    pass


def seeded(kind: Any) -> Any:
    torch.manual_seed(3)
    return kind()


def estimator(folder: Path, **other: Any) -> TorchEstimator:
    settings: dict[str, Any] = {
        "backend": WorldBackend(),
        "store": Store.create(folder),
        "model": seeded(Module),
        "feature_cols": ["x"],
        "label_cols": ["y"],
        "input_shapes": [[-1, 4]],
        "batch_size": BATCH,
        "epochs": EPOCHS,
        "shuffle": False,
        "verbose": 0,
        **other,
    }
    return TorchEstimator(**settings)


def in_one_process(module: Any, data: dict[str, Any]) -> Any:
    model = copy.deepcopy(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    inputs, labels = torch.tensor(data["x"]).float(), torch.tensor(data["y"]).float()[:, None]
    for _ in range(EPOCHS):
        for step in range(ROWS // 2 // BATCH):
            rows = rows_of_step(step, BATCH)
            optimizer.zero_grad()
            functional.mse_loss(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    return model(inputs).detach().numpy()[:, 0]


def fit(folder: Path, **other: Any) -> tuple[Any, dict[str, Any]]:
    """The trained model, and the data."""
    trained = estimator(folder, **other)
    data = write_columns(trained.getStore())
    return trained.fit_on_parquet(dataset_idx=0), data


def predicted(model: Any, data: dict[str, Any]) -> Any:
    make, args = model.prediction()
    return make(*args)([data["x"]])[0][:, 0]


@pytest.mark.parametrize("kind", [Module, OldModule])
def test_it_is_a_training_in_one_process(tmp_path: Path, kind: Any) -> None:
    model, data = fit(tmp_path, model=seeded(kind))
    assert np.abs(predicted(model, data) - in_one_process(seeded(kind), data)).max() < 1e-5
    assert [each["epoch"] for each in model.getHistory()] == list(range(EPOCHS))
    assert not model.getModel().training  # as Horovod's
    assert model.getHistory()[1]["loss"] < model.getHistory()[0]["loss"]
    assert files_of(tmp_path) == [f"runs/{model.getRunId()}/checkpoint"]


def test_a_module_of_pytorch_is_trained_alike(tmp_path: Path) -> None:
    model = Module().layers
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found, data = fit(tmp_path, model=model, optimizer=optimizer, loss=functional.mse_loss)
    assert np.abs(predicted(found, data) - in_one_process(model, data)).max() < 1e-5


def test_a_run_is_resumed_with_the_same_model(tmp_path: Path) -> None:
    same: dict[str, Any] = {"random_seed": 5, "shuffle": True, "validation": "is_test"}
    whole, _ = fit(tmp_path, run_id="whole", **same)
    fit(tmp_path, run_id="parts", **same, epochs=1)
    parts, _ = fit(tmp_path, run_id="parts", **same)
    assert parts.getHistory() == whole.getHistory() and "val_loss" in whole.getHistory()[0]
    for one, other in zip(whole.getModel().parameters(), parts.getModel().parameters(), strict=True):
        assert torch.equal(one, other)


def test_dropout_and_what_the_module_counts_are_the_same_after_a_resume(tmp_path: Path) -> None:
    class Counting(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers.insert(1, torch.nn.Dropout(0.5))
            self.register_buffer("epochs", torch.zeros(()))
            self.save_hyperparameters({"path": tmp_path})  # an object, which a resume does not need

        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

        def on_train_epoch_end(self) -> None:
            self.epochs += 1

    same: dict[str, Any] = {"random_seed": 5}
    whole, _ = fit(tmp_path, run_id="whole", model=seeded(Counting), **same)
    fit(tmp_path, run_id="parts", model=seeded(Counting), epochs=1, **same)
    parts, _ = fit(tmp_path, run_id="parts", model=seeded(Counting), **same)
    assert parts.getModel().epochs == whole.getModel().epochs == EPOCHS
    for one, other in zip(whole.getModel().parameters(), parts.getModel().parameters(), strict=True):
        assert torch.equal(one, other)


def test_data_in_memory_are_read_once(tmp_path: Path) -> None:
    class Removing(lightning.Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            for file in [*tmp_path.glob("intermediate*/*.parquet")]:
                file.unlink(missing_ok=True)

    model, _ = fit(tmp_path, inmemory_cache_all=True, validation="is_test", callbacks=[Removing()], epochs=3)
    assert len(model.getHistory()) == 3


def test_callbacks_and_arguments_reach_the_trainer(tmp_path: Path) -> None:
    stop = lightning.pytorch.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    model, _ = fit(tmp_path, callbacks=[stop], epochs=9, trainer_args={"gradient_clip_val": 0.5})
    assert len(model.getHistory()) == 2


@pytest.mark.parametrize("is_list", [True, False])
def test_callbacks_among_the_arguments_are_called_beside_those_of_the_estimator(tmp_path: Path, is_list: bool) -> None:
    stop = lightning.pytorch.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    model, _ = fit(tmp_path, epochs=9, trainer_args={"callbacks": [stop] if is_list else stop})
    assert len(model.getHistory()) == 2
    assert files_of(tmp_path) == [f"runs/{model.getRunId()}/checkpoint"]


@pytest.mark.parametrize(
    "name", ["strategy", "use_distributed_sampler", "max_epochs", "accelerator", "devices", "num_nodes"]
)
def test_arguments_that_the_estimator_sets_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(farandole.ArgumentError, match=f"trainer_args cannot have '{name}', which the estimator sets"):
        fit(tmp_path, trainer_args={name: 1})
    assert files_of(tmp_path) == []


def test_a_loss_that_is_no_number_ends_the_training_if_asked(tmp_path: Path) -> None:
    class Nan(Module):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) * float("nan")

    with pytest.raises(RanksFailed, match="the loss of batch 0 is nan, and terminate_on_nan is set"):
        fit(tmp_path, model=Nan(), terminate_on_nan=True)
    assert files_of(tmp_path) == []
