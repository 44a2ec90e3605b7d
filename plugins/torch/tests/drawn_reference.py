"""The same training in one process, by plain optimizers: the ranks' gradients one after the other, then combined."""

from __future__ import annotations

from typing import Any

import meanings
import numpy as np
import torch
from drawn_model import Model, backward, change, make_optimizer, warm_up
from drawn_settings import Settings
from torch import nn

Gradients = list[Any]  # a tensor or None for each parameter


class Reference:
    """The parameters of a rank, and of those that share its gradients, after each step."""

    def __init__(self, settings: Settings, rank: int) -> None:
        self.settings, self.group = settings, settings.group_of(rank)
        self.steps_apart = settings.op == "Adasum" and len(self.group) > 1
        self.stays_sparse = settings.sparse and (len(self.group) == 1 or not settings.sparse_as_dense)
        self._had_gradients: set[nn.Parameter] = set()
        self.models = [self._model() for _ in (self.group if self.steps_apart else self.group[:1])]
        self.optimizers = [make_optimizer(settings, model) for model in self.models]
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            warm_up(settings, model, optimizer, settings.root)
        self.schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in self.optimizers]

    def _model(self) -> Model:
        return Model(self.settings, self.settings.root)

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [parameter.detach() for parameter in self.models[0].parameters()]

    def step(self, step: int) -> torch.Tensor | None:
        """Take a step of all ranks; the reduced loss where there is a closure."""
        settings = self.settings
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            change(settings, model, optimizer, step)
        loss = self._step_apart(step) if self.steps_apart else self._step_together(step)
        if settings.schedule:
            for schedule in self.schedules:
                schedule.step()
        return loss

    def _step_together(self, step: int) -> torch.Tensor | None:
        settings, model, optimizer = self.settings, self.models[0], self.optimizers[0]

        def closure() -> torch.Tensor:
            everybody, losses = [], []
            for rank in self.group:
                optimizer.zero_grad(set_to_none=True)
                if step < settings.steps_of(rank):
                    losses.append(backward(settings, model, rank, step))
                everybody.append(_taken(model))
            for parameter, gradients in zip(model.parameters(), zip(*everybody, strict=True), strict=True):
                reduced = self._reduced(parameter, gradients) if parameter.requires_grad else None
                is_sparse = self.stays_sparse and parameter is model.embedding.weight
                parameter.grad = reduced.to_sparse(1) if is_sparse else reduced
            return sum(losses) / (1 if settings.op == "Sum" else len(self.group))

        if settings.closure:
            return optimizer.step(closure)
        closure()
        if settings.clips or settings.scaler == "unscale":
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        if not (settings.overflow[0] == step and settings.overflow[1] in self.group):
            optimizer.step()
        return None

    def _reduced(self, parameter: nn.Parameter, gradients: Gradients) -> torch.Tensor | None:
        """By the meaning of the operation; a rank without a gradient counts as zeros, but in a world of one."""
        if len(self.group) == 1:
            if gradients[0] is not None:
                self._had_gradients.add(parameter)
            stays = parameter in self._had_gradients and not self.settings.set_to_none
            return torch.zeros_like(parameter) if gradients[0] is None and stays else gradients[0]
        dense = [torch.zeros_like(parameter) if each is None else each for each in gradients]
        if self.settings.narrow:
            kind = torch.float16 if self.settings.compression == "fp16" else torch.bfloat16
            dense = [each.to(kind).float() for each in dense]
        arrays = [each.double().numpy() for each in dense]
        values = meanings.reduction(self.settings.op, arrays, len(arrays), 1.0, 1.0).values
        return torch.from_numpy(np.asarray(values)).to(parameter.dtype)

    def _step_apart(self, step: int) -> None:
        """Adasum: each rank by its own gradients and optimizer, then what all have changed."""
        starts = [each.clone() for each in self.parameters]
        for rank, model, optimizer in zip(self.group, self.models, self.optimizers, strict=True):
            optimizer.zero_grad(set_to_none=self.settings.set_to_none)
            if step < self.settings.steps_of(rank):
                backward(self.settings, model, rank, step)
                optimizer.step()
        everybody = zip(*(model.parameters() for model in self.models), strict=True)
        for start, parameters in zip(starts, everybody, strict=True):
            if parameters[0].requires_grad:
                deltas = [(parameter.detach() - start).numpy() for parameter in parameters]
                sums = torch.from_numpy(np.asarray(meanings.adasum(deltas, 1.0).values))
                for parameter in parameters:
                    parameter.detach().copy_(start + sums)


def _taken(model: Model) -> Gradients:
    gradients = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    return [each.to_dense() if each is not None and each.is_sparse else each for each in gradients]
