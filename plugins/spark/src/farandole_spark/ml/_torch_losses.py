"""Computes the loss of a PyTorch module, which knows neither columns nor row weights, from the columns of a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from farandole_spark.ml._reader import Stream

Loss = Callable[..., torch.Tensor]
Batch = tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]
"""Inputs, labels, and weights of rows."""


@dataclass(frozen=True)
class Losses:
    """A loss and a weight for each label. `label_shapes`: None for those of the outputs. `constructors`: see `made`."""

    losses: Sequence[Loss]
    weights: Sequence[float]
    label_shapes: Sequence[Sequence[int]] | None
    constructors: Sequence[Callable[..., Loss]] = ()

    def made(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Losses:
        """The same, with the losses that the user's functions make on a rank, if there are any."""
        made = [make(model=model, optimizer=optimizer) for make in self.constructors]
        return replace(self, losses=made) if made else self

    def to(self, device: torch.device) -> Losses:
        """Return the same losses, with their tensors, such as class weights, on the device."""
        for each in self.losses:
            if isinstance(each, torch.nn.Module):
                each.to(device)
        return self

    def shaped(self, outputs: Any, labels: Sequence[torch.Tensor]) -> tuple[Sequence[Any], list[torch.Tensor]]:
        """Return the outputs as a list, and each label in the shape of its output, if their sizes match."""
        listed = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
        if self.label_shapes:
            return listed, [each.reshape(list(shape)) for each, shape in zip(labels, self.label_shapes, strict=True)]
        pairs = zip(labels, listed, strict=True)
        return listed, [each.reshape(like.shape) if each.numel() == like.numel() else each for each, like in pairs]

    def total(
        self, outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor], rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the sum of the labels' losses. With row weights, each is the mean of the rows' weighted losses."""
        found = []
        for output, label, loss, weight in zip(outputs, labels, self.losses, self.weights, strict=True):
            if rows is None:
                found.append(loss(output, label) * weight)
            else:
                found.append((_loss_of_rows(loss, output, label).flatten() * rows).mean() * weight)
        return torch.stack(found).sum()


@dataclass(frozen=True)
class Places:
    """The columns of a batch in the order that a module expects."""

    features: Sequence[str]
    labels: Sequence[str]
    weight: str | None
    input_shapes: Sequence[Sequence[int]]

    def batches(self, stream: Stream, device: torch.device, kind: torch.dtype) -> Generator[Batch, None, None]:
        """Yield the batches of blocks. Tensors are made for one block at a time. Closes the blocks."""
        with contextlib.closing(stream):
            for block in stream:

                def parts(name: str, *shape: int, block: Mapping[str, Any] = block) -> tuple[torch.Tensor, ...]:
                    found: torch.Tensor = torch.as_tensor(block[name]).to(device, kind)
                    return tuple((found.reshape(len(found), *shape) if shape else found).unbind(0))

                inputs = [parts(name, *shape) for name, shape in zip(self.features, self.input_shapes, strict=True)]
                labels = [parts(name) for name in self.labels]
                weights = parts(self.weight) if self.weight else (None,) * len(labels[0])
                for number, weight in enumerate(weights):
                    yield [each[number] for each in inputs], [each[number] for each in labels], weight


def float_type_of(model: torch.nn.Module) -> torch.dtype:
    """Return the float type that a module takes, which is that of its first parameter."""
    return next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)


def _loss_of_rows(loss: Loss, output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the loss of each row. Functions take `reduction` as an argument, and modules have it as an attribute."""
    if not isinstance(loss, torch.nn.Module):
        return loss(output, label, reduction="none")
    before, loss.reduction = loss.reduction, "none"
    try:
        return loss(output, label)
    finally:
        loss.reduction = before
