"""A case: one call, as all members of a process set make it, and the arrays that each of them hands in.

Everything is drawn alike on every rank from the case's key, so nothing but numbers of cases travels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from meanings import COMPLEX, DTYPES, FLOATS

REDUCING = ("allreduce", "reducescatter", "sparse")


class Key(NamedTuple):
    """Names a window of cases for all time: what a failure prints, and what replays it."""

    seed: int
    ranks: int
    mode: str
    number: int

    def __str__(self) -> str:
        return f"FARANDOLE_SEED={self.seed} FARANDOLE_CASE={self.ranks}-{self.mode}-{self.number}"


@dataclass
class Case:
    """One call: its operation, its members and their inputs."""

    key: Key
    position: int  # within the window
    operation: str
    members: tuple[int, ...]  # global ranks, in the order of the set
    whole: bool  # the members are the world, and no process set is given
    dtype: str = "float32"
    shapes: list[tuple[int, ...]] = field(default_factory=list)  # one per tensor; the first dimension may be of `rows`
    rows: list[list[int]] = field(default_factory=list)  # per tensor: the first dimension of each member
    splits: list[list[int]] = field(default_factory=list)  # alltoall: per member the rows for each member
    grouped: bool = False
    name: str | None = None
    blocking: bool = False
    in_place: bool = False
    op: str = "Sum"
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = -1  # a global rank; -1: the operation has no root
    joined: frozenset[int] = frozenset()  # global ranks that have no more data when the case is performed

    @property
    def ordered(self) -> bool:
        """Returns whether it must keep its place: unnamed ones are matched by order, blocking ones wait for all."""
        return self.blocking or self.name is None

    def shape(self, tensor: int, member: int) -> tuple[int, ...]:
        shape = self.shapes[tensor]
        if not self.rows:
            return shape
        return (0 if self.members[member] in self.joined else self.rows[tensor][member], *shape[1:])

    def data(self, tensor: int, member: int) -> np.ndarray:
        """The input of member number `member`, or what stands for it when it has joined."""
        shape, kind = self.shape(tensor, member), DTYPES[self.dtype]
        if self.members[member] in self.joined:
            return np.zeros(shape, kind)
        key = (self.key.seed, self.key.ranks, len(self.key.mode), self.key.number)
        draw = np.random.default_rng([*key, self.position, tensor, member])
        if self.dtype == "bool":
            return np.asarray(draw.integers(0, 2, shape), dtype=kind)
        if self.dtype in FLOATS:
            return np.asarray(self._floats(draw, shape), dtype=kind)
        if self.dtype in COMPLEX:
            return np.asarray(self._floats(draw, shape) + 1j * self._floats(draw, shape), dtype=kind)
        limits = np.iinfo(kind)
        if self.prescale == self.postscale == 1.0:
            return np.asarray(draw.integers(limits.min, limits.max, shape, kind, endpoint=True))
        low, high = max(limits.min, -1000), min(limits.max, 1000)  # so that scaling in double precision is exact
        return np.asarray(draw.integers(low, high, shape, kind, endpoint=True))

    def inputs(self, tensor: int) -> list[np.ndarray]:
        return [self.data(tensor, member) for member in range(len(self.members))]

    def splits_of(self, member: int) -> Any:
        """As this member gives them."""
        return self.splits[member]

    def _floats(self, draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.op == "Product":
            return draw.uniform(0.5, 1.5, shape) * draw.choice([-1.0, 1.0], shape)
        values = draw.standard_normal(shape) * draw.choice([1e-3, 1.0, 4.0], shape)
        if self.op in ("Min", "Max") or self.operation not in REDUCING:
            special = draw.random(shape) < 0.02
            values = np.where(special, draw.choice([np.nan, np.inf, -np.inf, -0.0], shape), values)
        return values
