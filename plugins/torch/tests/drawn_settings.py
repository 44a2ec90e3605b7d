"""Random settings of a training: what the script, the model and DistributedOptimizer do. Alike on all ranks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

STEPS = 4
_NARROW = ("fp16", "bf16")
_FOR_SPARSE = [  # the rules that take sparse gradients, and do with them what they do with dense ones
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.5}),
    ("Adagrad", {"lr": 0.1}),
]
_RULES = [
    *_FOR_SPARSE,
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.02}),
    ("AdamW", {"lr": 0.02, "weight_decay": 0.3, "foreach": True}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.3}),
]


class Key(NamedTuple):
    """Names a training for all time: what a failure prints, and what replays it."""

    seed: int
    ranks: int
    number: int

    def __str__(self) -> str:
        return f"FARANDOLE_SEED={self.seed} FARANDOLE_CASE=training-{self.ranks}-{self.number}"


@dataclass
class Settings:
    """A training of STEPS steps."""

    key: Key
    rule: str = "SGD"
    options: dict[str, Any] = field(default_factory=dict)
    op: str = "Average"
    passes: int = 1
    predivide: float = 1.0
    compression: str = "none"
    groups: int | str | None = None  # "lists": of parameters
    named: bool = True
    members: tuple[int, ...] = ()  # of the process set; those of the world: none is given
    root: int = 0  # whose parameters, and state of the optimizer, all start with
    warm: bool = False  # the optimizer has taken a step of its own on each rank before
    sparse: bool = False  # the embedding's gradient
    sparse_as_dense: bool = False
    branches: bool = False  # a part of the model is used on some ranks in some steps only
    thaws: bool = False  # a parameter requires a gradient from step 2 on
    grows: bool = False  # a parameter is added in step 2
    clips: str = ""  # "before": between synchronize() and step(); "skip": the latter under skip_synchronize()
    scaler: str = ""  # "alone", or "unscale": with clipping between
    overflow: tuple[int, int] = (-1, -1)  # (step, rank): where the scaled loss is infinite
    closure: bool = False
    schedule: str = ""  # "before" or "after": when the scheduler is made, seen from DistributedOptimizer
    set_to_none: bool = True
    stops: tuple[int, ...] = ()  # by rank: how many steps it takes before it joins

    @property
    def narrow(self) -> bool:
        return self.compression in _NARROW

    def group_of(self, rank: int) -> list[int]:
        """The ranks whose gradients come together where this rank's do."""
        return list(self.members) if rank in self.members else [rank]

    def uses_branch(self, rank: int, step: int) -> bool:
        return not self.branches or random.Random(repr((self.key, "branch", rank, step))).random() < 0.5

    def steps_of(self, rank: int) -> int:
        return self.stops[rank] if self.stops else STEPS


def draw_settings(key: Key) -> Settings:
    draw = random.Random(repr(tuple(key)))
    settings = Settings(key)
    everybody = tuple(range(key.ranks))
    settings.members = everybody
    if key.ranks > 1 and draw.random() < 0.25:
        settings.members = tuple(sorted(draw.sample(everybody, draw.randint(1, key.ranks))))
    settings.root = draw.choice(everybody)
    settings.named, settings.set_to_none = draw.random() < 0.8, draw.random() < 0.7
    settings.branches, settings.warm = draw.random() < 0.3, draw.random() < 0.25
    settings.thaws, settings.grows = draw.random() < 0.2, draw.random() < 0.2
    settings.schedule = draw.choice(["", "", "before", "after"])
    settings.groups = draw.choice([None, None, 0, 1, 2, 3, "lists"])
    settings.passes = draw.choice([1, 1, 1, 2, 3])
    settings.op = draw.choice(["Average"] * 8 + ["Sum"] * 3 + ["Min", "Max", "Product"])
    settings.rule, settings.options = draw.choice(_RULES)
    _KINDS[draw.choice(list(_KINDS))](settings, draw)
    settings.grows &= settings.rule != "Adagrad"  # which before torch 2.11 has no state for what is added
    if settings.op == "Product":  # whose steps can be large
        settings.rule, settings.options = "SGD", {"lr": 0.001}
    return settings


def _plain(settings: Settings, draw: random.Random) -> None:
    if settings.op == "Average":
        settings.predivide = draw.choice([1.0, 2.0, 0.25])


def _sparse(settings: Settings, draw: random.Random) -> None:
    settings.sparse, settings.sparse_as_dense = True, draw.random() < 0.4
    is_alone_somewhere = len(settings.members) == 1 or len(settings.members) < settings.key.ranks
    settings.warm &= not settings.sparse_as_dense  # sparse momentum takes no dense gradient
    if settings.sparse_as_dense and not is_alone_somewhere:  # where nothing is added and gradients stay sparse
        return
    settings.rule, settings.options = draw.choice(_FOR_SPARSE)
    settings.op = draw.choice(["Average", "Sum"])
    # Where a gradient that is set to zero stays, passes of a sparse and a dense one are added.
    settings.set_to_none = True


def _narrow(settings: Settings, draw: random.Random) -> None:
    settings.compression = draw.choice(_NARROW)
    settings.rule, settings.options, settings.op = "SGD", {"lr": 0.01}, draw.choice(["Average", "Sum"])


def _clipped(settings: Settings, draw: random.Random) -> None:
    settings.clips = draw.choice(["before", "skip"])


def _scaled(settings: Settings, draw: random.Random) -> None:
    settings.scaler, settings.op = draw.choice(["alone", "unscale"]), draw.choice(["Average", "Sum"])
    settings.overflow = (draw.randrange(STEPS), draw.randrange(settings.key.ranks))


def _closed(settings: Settings, draw: random.Random) -> None:
    settings.closure, settings.op = True, draw.choice(["Average", "Sum"])
    if draw.random() < 0.5:
        settings.rule, settings.options = "LBFGS", {"lr": 0.2, "max_iter": 3}
        settings.grows = settings.warm = False  # it takes one group, and its state is that of a closure


def _adasum(settings: Settings, draw: random.Random) -> None:
    settings.op, settings.passes = "Adasum", 1
    # Steps of one size whatever the gradients can be opposite, and Adasum of what then cancels depends on roundings.
    settings.rule, settings.options = draw.choice([rule for rule in _RULES if rule[0] == "SGD"])


def _uneven(settings: Settings, draw: random.Random) -> None:
    settings.members = tuple(range(settings.key.ranks))
    settings.stops = tuple(draw.randint(1, STEPS) for _ in settings.members)


_KINDS = {
    "plain": _plain,
    "sparse": _sparse,
    "narrow": _narrow,
    "clipped": _clipped,
    "scaled": _scaled,
    "closed": _closed,
    "adasum": _adasum,
    "uneven": _uneven,
}
