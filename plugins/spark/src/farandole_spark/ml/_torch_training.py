"""Trains a PyTorch model on a rank. Only ranks import this module."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import farandole_torch as hvd
import torch

from farandole_spark.ml._reader import Stream
from farandole_spark.ml._torch_losses import Batch, Losses, Places, float_type_of
from farandole_spark.ml._training import Trained, Training


@dataclass(frozen=True)
class TorchPlan:
    """What is trained, and how. `metrics` are groups with a function for each label, or with one for all."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: Losses
    metrics: Sequence[Sequence[Callable[..., torch.Tensor]]]
    places: Places
    compression: Any
    backward_passes: int
    train_minibatch: Callable[..., tuple[Any, torch.Tensor]] | None


def train(training: Training, plan: TorchPlan) -> Trained | None:
    """Train on this rank. All ranks call it, and rank 0 returns the result."""
    hvd.init()
    rank = _Rank(training, plan)
    rank.resume()
    rank.run_epochs()
    return Trained(rank.packed(), rank.history) if hvd.rank() == 0 else None


class _Rank:
    """A rank with its copy of the model."""

    def __init__(self, training: Training, plan: TorchPlan) -> None:
        self.training, self.plan, self.history = training, plan, list[dict[str, Any]]()
        self._device = torch.device("cpu")
        if training.use_gpu and torch.cuda.is_available():
            self._device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
            torch.cuda.set_device(self._device)
        torch.manual_seed(training.seed)
        self._model = plan.model.to(self._device)
        self._losses = plan.losses.made(plan.model, plan.optimizer).to(self._device)
        self._float = float_type_of(self._model)
        _scale_rates(plan.optimizer, hvd.size())
        self._optimizer = hvd.DistributedOptimizer(
            plan.optimizer,
            named_parameters=self._model.named_parameters(),
            compression=plan.compression or hvd.Compression.none,
            backward_passes_per_step=plan.backward_passes,
        )

    def _batches(self, stream: Stream) -> Generator[Batch, None, None]:
        return self.plan.places.batches(stream, self._device, self._float)

    def resume(self) -> None:
        """Load the state of the run's checkpoint, if there is one, and in any case the state of rank 0."""
        if (checkpoint := self.training.checkpoint()) is not None:
            found = torch.load(io.BytesIO(checkpoint.state), map_location=self._device, weights_only=True)
            self._model.load_state_dict(found["model"])
            self._optimizer.load_state_dict(found["optimizer"])
            _scale_rates(self._optimizer, hvd.size())  # the checkpoint has the user's rates
            self.history = checkpoint.history
        hvd.broadcast_parameters(self._model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self._optimizer, root_rank=0)

    def packed(self) -> bytes:
        """Return the state as bytes, with the learning rates that the user gave."""
        optimizer = self._optimizer.state_dict()
        for group in optimizer["param_groups"]:
            group["lr"] = group["lr"] / hvd.size()
        file = io.BytesIO()
        torch.save({"model": self._model.state_dict(), "optimizer": optimizer}, file)
        return file.getvalue()

    def run_epochs(self) -> None:
        """Run the remaining epochs."""
        training, size = self.training, hvd.size()
        steps = training.steps_of_epoch(size)
        steps_of_validation = training.steps_of_validation(size)
        float_type = str(self._float).removeprefix("torch.")
        read = self._batches(training.train_blocks(hvd.rank(), size, len(self.history), float_type))
        for epoch in range(len(self.history), training.epochs):
            torch.manual_seed(training.seed_of(epoch, hvd.rank()))
            found: dict[str, Any] = {"epoch": epoch, "train": self._train(itertools.islice(read, steps), steps)}
            if steps_of_validation:
                read_once = self._batches(training.validation_blocks(hvd.rank(), size, float_type))
                with contextlib.closing(read_once) as batches:
                    found["validation"] = self._validate(itertools.islice(batches, steps_of_validation))
            if training.verbose and hvd.rank() == 0:
                print(found, file=sys.stdout, flush=True)
            self.history.append(found)
            if hvd.rank() == 0 and training.store.saving_runs():
                training.save(epoch + 1, self.history, self.packed())
        read.close()

    def _train(self, batches: Iterator[Batch], steps: int) -> dict[str, Any]:
        self._model.train()
        self._optimizer.zero_grad()
        sums = _Sums(self.training.labels, self.plan.metrics)
        step = self._step_of_user if self.plan.train_minibatch else self._step
        for number, batch in enumerate(batches):
            outputs, loss = step(batch, number, number + 1 == steps)
            sums.add(len(batch[1][0]), loss, *self._losses.shaped(outputs, batch[1]))
        return sums.averages("train")

    def _step(self, batch: Batch, number: int, is_last: bool) -> tuple[Any, torch.Tensor]:
        inputs, labels, weights = batch
        outputs, labels = self._losses.shaped(self._model(*inputs), labels)
        loss = self._losses.total(outputs, labels, weights)
        (loss / self.plan.backward_passes).backward()
        if is_last or (number + 1) % self.plan.backward_passes == 0:
            self._optimizer.step()
            self._optimizer.zero_grad()
        return outputs, loss

    def _step_of_user(self, batch: Batch, number: int, is_last: bool) -> tuple[Any, torch.Tensor]:
        assert self.plan.train_minibatch is not None
        passes = self.plan.backward_passes
        return self.plan.train_minibatch(
            self._model, self._optimizer, self._losses.shaped, self._losses.total, *batch, passes, number
        )

    def _validate(self, batches: Iterator[Batch]) -> dict[str, Any]:
        self._model.eval()
        sums = _Sums(self.training.labels, self.plan.metrics)
        with torch.no_grad():
            for inputs, labels, weights in batches:
                outputs, labels = self._losses.shaped(self._model(*inputs), labels)
                sums.add(len(labels[0]), self._losses.total(outputs, labels, weights), outputs, labels)
        return sums.averages("validation")


class _Sums:
    """Loss and metrics over the rows of all ranks."""

    def __init__(self, labels: Sequence[str], metrics: Sequence[Sequence[Callable[..., torch.Tensor]]]) -> None:
        self._labels, self._metrics = labels, metrics
        self._rows, self._values = 0, torch.zeros(1 + len(labels) * len(metrics), dtype=torch.float64)

    def add(self, rows: int, loss: torch.Tensor, outputs: Sequence[Any], labels: Sequence[torch.Tensor]) -> None:
        values = [loss.detach()]
        with torch.no_grad():
            for group in self._metrics:
                of_labels = group if len(group) > 1 else [group[0]] * len(labels)
                found = (measure(*each) for measure, *each in zip(of_labels, outputs, labels, strict=True))
                values += [torch.as_tensor(value, dtype=torch.float64) for value in found]
        self._rows += rows
        self._values += rows * torch.stack([value.double().reshape(()).cpu() for value in values])

    def averages(self, stage: str) -> dict[str, Any]:
        """Return the averages over all ranks, in the format of Horovod's history."""
        sums = torch.cat([self._values, torch.tensor([float(self._rows)], dtype=torch.float64)])
        *values, rows = hvd.allreduce(sums, op=hvd.Sum, name=f"farandole.{stage}").tolist()
        loss, *others = (value / rows for value in values)
        named = iter(others)
        groups = [
            {f"group_{number}_{label}": next(named) for label in self._labels} for number in range(len(self._metrics))
        ]
        return {"loss": loss, "all_metrics": groups}


def _scale_rates(optimizer: torch.optim.Optimizer, ranks: int) -> None:
    """Multiply the learning rates by the number of ranks, as Horovod's estimators do."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * ranks
