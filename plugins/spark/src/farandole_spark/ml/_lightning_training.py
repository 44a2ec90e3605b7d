"""Trains a LightningModule on a rank with Lightning's Trainer. Only ranks import this module."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import pickle
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import farandole
import farandole_torch as hvd
import lightning.pytorch
import torch
import torch.distributed
from farandole_torch.lightning import FarandoleEnvironment, FarandoleStrategy

from farandole_spark.ml._reader import Stream, batches_of
from farandole_spark.ml._torch_losses import Batch, Losses, Places, float_type_of
from farandole_spark.ml._training import Trained, Training

Batches = Generator[Any, None, None]
_FILE, _NAME = "trainer.ckpt", "farandole"


@dataclass(frozen=True)
class Plain:
    """Makes a PyTorch module trainable by Lightning."""

    optimizer: torch.optim.Optimizer
    losses: Losses
    places: Places


@dataclass(frozen=True)
class LightningPlan:
    """What is trained, and how. `plain`: the model is no LightningModule. `arguments`: the Trainer's."""

    model: Any
    plain: Plain | None
    stops_at_nan: bool
    uses_gpu: bool
    arguments: Mapping[str, Any]


def train(training: Training, plan: LightningPlan) -> Trained | None:
    """Train on this rank. All ranks call it, and rank 0 returns the result."""
    hvd.init()
    lightning.pytorch.seed_everything(training.seed_of(0, hvd.rank()), verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        rank = _Rank(training, plan, Path(folder))
        rank.run_epochs()
        return Trained(rank.trained_state(), rank.history) if hvd.rank() == 0 else None


class _Rank:
    """A rank with its Trainer. `folder` is for files of this rank only."""

    def __init__(self, training: Training, plan: LightningPlan, folder: Path) -> None:
        self.training, self.plan, self.history = training, plan, list[dict[str, Any]]()
        self._folder = folder
        self._module = _PlainModule(plan.model, plan.plain) if plan.plain else plan.model
        package = _package_of(self._module)
        uses_gpu = plan.uses_gpu and torch.cuda.is_available()
        settings: dict[str, Any] = {
            "max_epochs": training.epochs,
            "accelerator": "gpu" if uses_gpu else "cpu",
            "devices": hvd.local_size() if package is not lightning.pytorch else "auto" if uses_gpu else 1,
            "num_nodes": hvd.cross_size(),
            "num_sanity_val_steps": 0,
            "enable_progress_bar": training.verbose > 1 and hvd.rank() == 0,
            "enable_model_summary": training.verbose > 1 and hvd.rank() == 0,
            "default_root_dir": str(folder / "run"),
            **plan.arguments,
            "enable_checkpointing": True,  # ours is one of Lightning's checkpoint callbacks, and the only one unasked
            "callbacks": [*plan.arguments["callbacks"], _epochs(package, self)],
        }
        self._trainer = package.Trainer(strategy=_strategy_of(package), use_distributed_sampler=False, **settings)

    def run_epochs(self) -> None:
        """Run the remaining epochs, starting from the run's checkpoint if there is one."""
        training, size = self.training, hvd.size()
        resumed: str | None = None
        if (checkpoint := training.checkpoint()) is not None:
            found, self.history = _unpacked(checkpoint.state), checkpoint.history
            if len(self.history) >= training.epochs:
                self._module.load_state_dict(found["state_dict"])
                return  # nothing is left to train
            resumed = str(self._folder / _FILE)
            torch.save(found, resumed)
        hvd.broadcast_parameters(self._module.state_dict(), root_rank=0)
        validation = training.steps_of_validation(size)
        self._trainer.fit(
            self._module,
            _Loader(self._train_batches, training.steps_of_epoch(size)),
            _Loader(self._validation_batches, validation) if validation else None,
            ckpt_path=resumed,
        )

    def _train_batches(self) -> Batches:
        return self._batches(self.training.train_blocks(hvd.rank(), hvd.size(), self._trainer.current_epoch, None))

    def _validation_batches(self) -> Batches:
        return self._batches(self.training.validation_blocks(hvd.rank(), hvd.size(), None))

    def _batches(self, stream: Stream) -> Batches:
        """Tensors by column, or as a module of PyTorch takes them; Lightning moves them to its device."""
        if (plain := self.plan.plain) is not None:
            yield from plain.places.batches(stream, torch.device("cpu"), float_type_of(self.plan.model))
            return
        with contextlib.closing(batches_of(stream)) as batches:
            for batch in batches:
                yield {name: torch.from_numpy(values) for name, values in batch.items()}

    def packed(self) -> bytes:
        """Return the state as bytes: Lightning's checkpoint, and the history. Lightning requires this on all ranks."""
        file = self._folder / _FILE
        self._trainer.save_checkpoint(file)
        if hvd.rank() != 0:
            return b""
        # Hyperparameters can be any objects. Only `load_from_checkpoint` needs them, and without them reading is safe.
        found = {name: each for name, each in torch.load(file, weights_only=False).items() if "hyper" not in name}
        packed = io.BytesIO()
        torch.save(found, packed)
        return packed.getvalue()

    def trained_state(self) -> bytes:
        """Return the state of the user's model as bytes."""
        packed = io.BytesIO()
        torch.save(self.plan.model.state_dict(), packed)
        return packed.getvalue()

    def end_epoch(self) -> None:
        """Record the measurements, and save the state and what loggers have written. Called on all ranks."""
        training = self.training
        metrics = {name: float(value) for name, value in self._trainer.callback_metrics.items()}
        self.history.append({"epoch": self._trainer.current_epoch, **metrics})
        if training.verbose and hvd.rank() == 0:
            print(self.history[-1], flush=True)
        if training.store.saving_runs():
            packed = self.packed()
            if hvd.rank() == 0:
                training.save(len(self.history), self.history, packed, self._folder / "run")


def _unpacked(packed: bytes) -> dict[str, Any]:
    try:
        return dict(torch.load(io.BytesIO(packed), weights_only=True, map_location="cpu"))
    except pickle.UnpicklingError as error:
        raise farandole.FarandoleError(
            "the run cannot be resumed: the module or a callback keeps objects in checkpoints that PyTorch does not "
            f"load from files. Allow them by torch.serialization.add_safe_globals in their module. {error}"
        ) from None


def _epochs(package: Any, rank: _Rank) -> Any:
    class Epochs(package.callbacks.Checkpoint):  # type: ignore[misc]  # which Lightning calls after the module's hooks
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            lightning.pytorch.seed_everything(rank.training.seed_of(trainer.current_epoch, hvd.rank()), verbose=False)

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if rank.plan.stops_at_nan and outputs is not None:
                loss = outputs["loss"] if isinstance(outputs, dict) else outputs
                if not math.isfinite(float(loss)):
                    raise ValueError(f"the loss of batch {batch_idx} is {float(loss)}, and terminate_on_nan is set")

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            rank.end_epoch()

    return Epochs()


def _package_of(module: Any) -> Any:
    """Return the package of Lightning from which the module's class comes, since its classes exist in two packages."""
    if any(kind.__module__.startswith("pytorch_lightning.") for kind in type(module).__mro__):
        import pytorch_lightning

        return pytorch_lightning
    return lightning.pytorch


def _strategy_of(package: Any) -> Any:
    if package is lightning.pytorch:
        return FarandoleStrategy()
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(_NAME, init_method="farandole://")
    return package.strategies.DDPStrategy(cluster_environment=FarandoleEnvironment(), process_group_backend=_NAME)


class _Loader:
    """The batches of an epoch."""

    def __init__(self, make: Callable[[], Batches], steps: int) -> None:
        self._make, self._steps = make, steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        with contextlib.closing(self._make()) as batches:
            yield from itertools.islice(batches, self._steps)


class _PlainModule(lightning.pytorch.LightningModule):  # type: ignore[misc]
    """A LightningModule from a plain module, an optimizer and losses."""

    def __init__(self, model: torch.nn.Module, plain: Plain) -> None:
        super().__init__()
        self.model = model
        self._plain = plain
        self._losses = plain.losses.made(model, plain.optimizer)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self._plain.optimizer

    def on_fit_start(self) -> None:
        self._losses.to(self.device)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        return self._measure(batch, "train_loss")

    def validation_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        return self._measure(batch, "val_loss")

    def _measure(self, batch: Batch, name: str) -> torch.Tensor:
        inputs, labels, weights = batch
        outputs, labels = self._losses.shaped(self.model(*inputs), labels)
        loss = self._losses.total(outputs, labels, weights)
        self.log(name, loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(inputs[0]))
        return loss
