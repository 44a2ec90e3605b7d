"""A rank with random settings: trains by DistributedOptimizer, and compares each step with the reference."""

from __future__ import annotations

import os
from typing import Any

import farandole
import farandole_torch as hvd
import torch
from drawn_model import Model, backward, change, make_optimizer, warm_up
from drawn_reference import Reference
from drawn_settings import STEPS, Key, Settings, draw_settings
from torch import nn

_ENOUGH = 3  # failures, after which a rank stops looking
_SLACK = {"none": (1e-9, 1e-11), "fp16": (2e-3, 1e-3), "bf16": (2e-2, 1e-2)}  # relative, absolute


def train_all(keys: list[Key]) -> list[str]:
    """A text for each failure."""
    failures: list[str] = []
    for key in keys:
        settings = draw_settings(key)
        try:
            failures += [f"{key}: rank {farandole.rank()}: {text}\n  {settings}" for text in train(settings)]
        except Exception as error:  # the world is likely broken: the others need not go on
            raise AssertionError(f"{key}: rank {farandole.rank()}: {error!r}\n  {settings}") from error
        if len(failures) >= _ENOUGH:
            break
    return failures


def train(settings: Settings) -> list[str]:
    everybody = tuple(range(settings.key.ranks))
    process_set = None if settings.members == everybody else hvd.add_process_set(list(settings.members))
    failures = Training(settings, process_set).run()
    if process_set is not None:
        hvd.remove_process_set(process_set)
    return failures


class Training:
    """This rank's part."""

    def __init__(self, settings: Settings, process_set: Any) -> None:
        self.settings, self.rank = settings, farandole.rank()
        self.model = Model(settings, self.rank)
        optimizer = make_optimizer(settings, self.model)
        warm_up(settings, self.model, optimizer, self.rank)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=settings.root)
        if settings.warm:
            hvd.broadcast_optimizer_state(optimizer, root_rank=settings.root)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5) if settings.schedule == "before" else None
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            self.model.named_parameters() if settings.named else None,
            getattr(hvd.Compression, settings.compression),
            backward_passes_per_step=settings.passes,
            op=getattr(hvd, settings.op),
            gradient_predivide_factor=settings.predivide,
            groups=self._groups(),
            sparse_as_dense=settings.sparse_as_dense,
            process_set=process_set,
        )
        if settings.schedule == "after":
            schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1, 0.5)
        self.schedule = schedule
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2) if settings.scaler else None
        self.reference = Reference(settings, self.rank)

    def _groups(self) -> Any:
        if self.settings.groups != "lists":
            return self.settings.groups
        parameters = self.model.begins_with()
        return [parameters[1::3], parameters[0::3][::-1]]

    def run(self) -> list[str]:
        failures: list[str] = []
        for step in range(self.settings.steps_of(self.rank)):
            loss = self._step(step)
            expected = self.reference.step(step)
            failures += self._differences(f"after step {step}")
            if loss is not None and not _close(loss, expected, "none" if not self.settings.narrow else "bf16"):
                failures.append(f"step {step} returned the loss {loss} instead of {expected}")
        if self.settings.stops:
            failures += self._join()
        return failures + self._unlike()

    def _step(self, step: int) -> torch.Tensor | None:
        settings, optimizer = self.settings, self.optimizer
        change(settings, self.model, optimizer, step)
        loss = None
        if settings.closure:
            loss = optimizer.step(lambda: self._backward(step))
        else:
            self._backward(step)
            self._apply()
        if self.schedule:
            self.schedule.step()
        return loss

    def _backward(self, step: int) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=self.settings.set_to_none)
        return backward(self.settings, self.model, self.rank, step, self.scaler)

    def _apply(self) -> None:
        settings, optimizer = self.settings, self.optimizer
        if self.scaler:
            if settings.scaler == "unscale":
                self.scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.scaler.step(optimizer)
            self.scaler.update()
            return
        if settings.clips:
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        if settings.clips == "skip":
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()

    def _join(self) -> list[str]:
        """The others go on; then all have what the last one has."""
        settings = self.settings
        last = hvd.join()
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=last)
        if settings.stops[last] != max(settings.stops):
            return [f"join() gave {last}"]
        for step in range(settings.steps_of(self.rank), max(settings.stops)):
            self.reference.step(step)
        return self._differences("after join")

    def _differences(self, when: str) -> list[str]:
        pairs = zip(self.model.named_parameters(), self.reference.parameters, strict=True)
        return [
            f"{when}, {name} is {mine.tolist()} instead of {want.tolist()}"
            for (name, mine), want in pairs
            if not _close(mine.detach(), want, self.settings.compression)
        ]

    def _unlike(self) -> list[str]:
        """Returns whether the ranks whose gradients come together have the same bits."""
        flat = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        bits = hvd.allgather(flat[None])
        return [
            f"the parameters are not those of rank {other}"
            for other in self.settings.group_of(self.rank)
            if not torch.equal(bits[other], flat)
        ]


def _close(mine: torch.Tensor, want: torch.Tensor, compression: str) -> bool:
    relative, absolute = _SLACK[compression]
    return bool(torch.isfinite(mine).all()) and torch.allclose(mine, want, rtol=relative, atol=absolute)


def hurried() -> None:
    """A wait that has no end is an error soon."""
    farandole.shutdown()
    os.environ["FARANDOLE_TIMEOUT"] = "30"
    farandole.init()


def unhurried() -> None:
    farandole.shutdown()
    os.environ.pop("FARANDOLE_TIMEOUT")
    farandole.init()


__all__ = ["STEPS", "hurried", "train_all", "unhurried"]
