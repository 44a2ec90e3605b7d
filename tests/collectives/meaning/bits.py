"""A rank of the suite of equal bits: performs one step of random tensors under random settings."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import farandole.numpy as fnp
import numpy as np
from living import Settings, settings_of, settle
from meanings import DTYPES, FLOATS
from order import adasum_bits, bits, groups_of

_DTYPES = ("float32", "float32", "float64", "float16", "bfloat16", "int32", "uint8", "int64")
_THRESHOLDS = ("0", "1000", "20000", "4194304", "100000000")
_ALGORITHMS = ("auto", "auto", "direct", "tree", "exchange", "ring")
_STEPS = 3  # the first describes the tensors, the others find them known


@dataclass(frozen=True)
class Tensor:
    name: str
    kind: str  # of collective
    dtype: str
    count: int
    op: str
    factor: float


@dataclass(frozen=True)
class Configuration:
    """How and by whom the tensors are reduced; equal on all ranks."""

    seed: int
    ranks: int
    number: int
    alone: tuple[int, ...]
    threshold: str
    algorithm: str
    tensors: tuple[Tensor, ...]

    @property
    def settings(self) -> list[Settings]:
        mode = settings_of("mixed" if self.alone else "shared", self.ranks, self.alone)
        common = {"FARANDOLE_FUSION_THRESHOLD": self.threshold, "FARANDOLE_ALGORITHM": self.algorithm}
        return [{**each, **common} for each in mode]


def draw(seed: int, ranks: int, number: int) -> Configuration:
    dice = random.Random(f"{seed}.{ranks}.{number}")
    alone = dice.choice([(), tuple(range(ranks)), tuple(sorted(dice.sample(range(ranks), dice.randint(1, ranks))))])
    algorithm = dice.choice(_ALGORITHMS)
    tensors = tuple(draw_tensor(dice, k) for k in range(dice.randint(2, 10)))
    return Configuration(seed, ranks, number, alone, dice.choice(_THRESHOLDS), algorithm, tensors)


def draw_tensor(dice: random.Random, k: int) -> Tensor:
    count = int(math.exp(dice.uniform(0, math.log(30_000))))
    if dice.random() < 0.04:
        count *= 10
    op = dice.choice(["Sum", "Sum", "Average", "Min", "Max", "Adasum"])
    kind = "allreduce" if op == "Adasum" else dice.choice(["allreduce", "allreduce", "reducescatter"])
    factor = dice.choice([1.0, 1.0, 0.5, 0.1]) if op in ("Sum", "Average", "Adasum") else 1.0
    dtype = dice.choice([name for name in _DTYPES if op != "Adasum" or name in FLOATS])
    return Tensor(f"bits.{k}", kind, dtype, count, op, factor)


def data(configuration: Configuration, k: int, step: int, rank: int) -> np.ndarray:
    """Values of very different magnitudes, so that the order of additions shows."""
    tensor = configuration.tensors[k]
    dice = np.random.default_rng([configuration.seed, configuration.ranks, configuration.number, k, step, rank])
    if "int" in tensor.dtype:
        limit = min(np.iinfo(tensor.dtype).max, 10**6)
        return dice.integers(0, limit, tensor.count).astype(tensor.dtype)
    reach = 3 if "16" in tensor.dtype else 12
    return (dice.standard_normal(tensor.count) * 2.0 ** dice.integers(-reach, reach, tensor.count)).astype(
        DTYPES[tensor.dtype]
    )


def has_bits(configuration: Configuration, tensor: Tensor) -> bool:
    """A forced ring gives up the order of allreduce's sums wherever more than two groups meet."""
    groups = groups_of(configuration.ranks, configuration.alone)
    free = "int" in tensor.dtype or tensor.op in ("Min", "Max", "Adasum") or tensor.kind == "reducescatter"
    return configuration.algorithm != "ring" or len(groups) <= 2 or free


def check(seed: int, ranks: int, numbers: Sequence[int]) -> tuple[int, list[str]]:
    """Reduce under each configuration; how many tensors were compared, and a text for each that has other bits."""
    wrong: list[str] = []
    compared = 0
    for number in numbers:
        configuration = draw(seed, ranks, number)
        settle(configuration.settings)
        for step in range(_STEPS):
            results = perform(configuration, step)
            for k, tensor in enumerate(configuration.tensors):
                if has_bits(configuration, tensor):
                    compared += 1
                    wrong += judge(configuration, k, step, results[k])
        if len(wrong) > 3:
            break
    return compared, wrong


def perform(configuration: Configuration, step: int) -> dict[int, np.ndarray]:
    """One step, submitted in this rank's own order and at its own pace."""
    dice = random.Random(f"{configuration.seed}.{configuration.number}.{step}.{fnp.rank()}")
    handles = {}
    for k in dice.sample(range(len(configuration.tensors)), len(configuration.tensors)):
        tensor = configuration.tensors[k]
        if dice.random() < 0.1:
            time.sleep(dice.random() * 0.002)
        array = data(configuration, k, step, fnp.rank())
        op = getattr(fnp, tensor.op)
        start = getattr(fnp, f"{tensor.kind}_async")
        handles[k] = start(array, name=tensor.name, op=op, prescale_factor=tensor.factor)
    return {k: fnp.synchronize(handle) for k, handle in handles.items()}


def judge(configuration: Configuration, k: int, step: int, got: np.ndarray) -> list[str]:
    tensor = configuration.tensors[k]
    inputs = [data(configuration, k, step, rank) for rank in range(configuration.ranks)]
    if tensor.op == "Adasum":
        want = adasum_bits(inputs, tensor.factor)
    else:
        want = bits(tensor.op, inputs, groups_of(configuration.ranks, configuration.alone), tensor.factor)
    if tensor.kind == "reducescatter":
        want = np.array_split(want, configuration.ranks)[fnp.rank()]
    if got.tobytes() == want.tobytes():
        return []
    first = int(np.nonzero(got.view(f"V{got.itemsize}") != want.view(f"V{got.itemsize}"))[0][0])
    return [
        f"FARANDOLE_SEED={configuration.seed} FARANDOLE_CASE={configuration.ranks}-{configuration.number}: rank "
        f"{fnp.rank()}, step {step}, element {first} of {tensor} is {got[first]!r} instead of {want[first]!r}; "
        f"{configuration}"
    ]
