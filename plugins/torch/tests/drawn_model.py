"""A small model with parameters of many kinds, its batches, and what one rank's backward passes are."""

from __future__ import annotations

from typing import Any

import torch
from drawn_settings import Settings
from torch import nn


class Model(nn.Module):
    """An embedding; layers, one of which is used twice and one at times; parameters of 0 dimensions and transposed."""

    def __init__(self, settings: Settings, rank: int) -> None:
        torch.manual_seed(100 * settings.key.number + rank)
        super().__init__()
        self.embedding = nn.Embedding(7, 3, sparse=settings.sparse)
        self.first = nn.Linear(3, 4)
        self.twice = nn.Linear(4, 4)
        turned = torch.randn(4, 4).t()
        self.turned = nn.Parameter(turned.contiguous() if settings.rule == "LBFGS" else turned)  # which needs it whole
        self.branch = nn.Linear(4, 4, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.last = nn.Linear(4, 2)
        self.late = nn.Parameter(torch.ones(2))
        self.to(torch.float32 if settings.narrow else torch.float64)
        self.first.bias.requires_grad_(not settings.thaws)
        self.late.requires_grad_(False)
        self.takes_branch = True

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(self.embedding(words)))
        hidden = torch.tanh(self.twice(self.twice(hidden)) @ self.turned)
        if self.takes_branch:
            hidden = hidden + self.branch(hidden)
        return self.last(hidden) * self.scale + self.late

    def begins_with(self) -> list[nn.Parameter]:
        """The parameters that the optimizer is made with."""
        return [each for each in self.parameters() if each is not self.late]


def change(settings: Settings, model: Model, optimizer: torch.optim.Optimizer, step: int) -> None:
    """The changes that the script makes before this step."""
    if step == 2 and settings.thaws:
        model.first.bias.requires_grad_(True)
    if step == 2 and settings.grows:
        model.late.requires_grad_(True)
        optimizer.add_param_group({"params": [model.late]})


def backward(settings: Settings, model: Model, rank: int, step: int, scaler: Any = None) -> torch.Tensor:
    """All passes of a rank's step; returns the last one's loss."""
    model.takes_branch = step >= 0 and settings.uses_branch(rank, step)
    for number in range(settings.passes):
        draw = torch.Generator().manual_seed(((settings.key.number * 10 + rank) * 10 + step + 1) * 10 + number)
        words = torch.randint(7, (1 + (rank + step) % 3,), generator=draw)
        loss = (model(words) - 0.1 * rank).square().mean()
        if (step, rank) == settings.overflow:
            loss = loss * float("inf")
        (scaler.scale(loss) if scaler else loss).backward()
    return loss.detach()


def make_optimizer(settings: Settings, model: Model) -> torch.optim.Optimizer:
    rule: Any = getattr(torch.optim, settings.rule)
    return rule(model.begins_with(), **settings.options)


def warm_up(settings: Settings, model: Model, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """A step of the rank by itself, which leaves a state in the optimizer."""
    if settings.warm:
        (model(torch.arange(7)) - rank).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
