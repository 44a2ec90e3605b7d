"""The ranks agree on the parameters that they reduce: in the first step, and when a rank's frozen parameters change.

first step, before anything is reduced --names, groups and own set, allgathered--> equal on all, or an error on all
                                       --checksums of the parameters with them--> equal on all, or a warning
as in the step before --> nothing is sent
changed --the same, allgathered under the name of a reduction--> likewise

Ranks whose set has not changed begin that reduction: then the core tells all that they disagree, and all exchange their
sets to say about which parameter.
"""

from __future__ import annotations

import itertools
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from farandole import Handle, MismatchError, ProcessSet, allgather_object, rank
from farandole.plugin import is_alone
from farandole.plugin.parameter_check import NOT_COMPARED, warn_about_differences

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._owners import Parameter, check_owned, take

Required = tuple[bool, ...]  # for each parameter, whether it requires a gradient
_NAMED = 3  # parameters that a message names
_REMEDY = "broadcast_parameters(model.state_dict(), root_rank=0)"


@dataclass(frozen=True)
class Plan:
    """The parameters that an optimizer reduces while none is frozen."""

    what: str  # what is reduced for the parameters, for messages
    names: Sequence[str]
    operations: Sequence[Sequence[str]]  # names that are reduced together


class Agreement(ABC):
    """Base class of the reductions: makes the ranks agree on the parameters of one optimizer that they reduce."""

    def __init__(self, parameters: Sequence[Parameter], names: Sequence[str], process_set: ProcessSet | None) -> None:
        self._parameters, self._names, self._process_set = list(parameters), list(names), process_set
        self.pauses = False  # inside `no_sync`
        self.has_lost = False  # another optimizer has taken a parameter
        self._owned: set[int] = set()  # indices of the parameters that are, or were, not frozen
        self._is_alone = True
        self._agreed: Required | None = None  # in the last step
        self._asked: Handle[Tensor] | None = None  # an exchange that Ctrl-C interrupted, to be resumed

    @property
    @abstractmethod
    def in_flight(self) -> bool:
        """Return whether a reduction is in flight."""

    @abstractmethod
    def _begin_watching(self, optimizer: Any) -> None:
        """Have each step call this object, and take ownership of the parameters; the ranks have changed."""

    @abstractmethod
    def _plan(self) -> Plan:
        """Return the gradients that are reduced while no parameter is frozen."""

    def start(self, optimizer: Any, alone: bool) -> None:
        """Begin to watch the optimizer's steps. `alone`: this rank has no others to reduce with."""
        self._is_alone, self._optimizer = alone, weakref.ref(optimizer)
        if not alone:
            self._begin_watching(optimizer)

    def forget(self) -> None:
        """Forget the step whose world has ended, and ask the ranks of the next world again."""
        self._agreed, self._asked = None, None
        optimizer = self._optimizer()
        if self._is_alone and optimizer is not None and not is_alone(self._process_set):
            self._is_alone = False
            self._begin_watching(optimizer)

    def _take(self) -> list[int]:
        """Take ownership of parameters that are no longer frozen. Return the indices of the new ones."""
        new = [i for i, each in enumerate(self._parameters) if each.requires_grad and i not in self._owned]
        self._owned.update(new)
        take([self._parameters[i] for i in new], self)
        return new

    def _check_owned(self) -> None:
        """Raise ValueError if another optimizer has taken a parameter and is still there."""
        if self.has_lost:
            check_owned({self._names[i]: self._parameters[i] for i in self._owned}, self)

    def _ask_at_first(self, required: Required, sums: Sequence[int] = ()) -> MismatchError | None:
        """Compare this rank's set with those of all others, whose first step it is, too; blocks.

        sums: checksums of the parameters, which are compared as well; ranks whose parameters differ are warned about.
        """
        return self._decision(required, self._gathered(required, _first_step(self._names), sums))

    def _ask(self, required: Required, operation: str) -> MismatchError | None:
        """Compare the sets although other ranks may begin the reduction of this name instead.

        Raises MismatchError if they do. The caller then calls `_explain`, after all operations that they wait for are
        complete.
        """
        return self._decision(required, self._gathered(required, operation))

    def _explain(self, required: Required, error: Exception) -> None:
        """Compare the sets if `error` says that only some ranks have asked. Raises MismatchError if the sets differ."""
        mismatch = next((each for each in (error, error.__cause__) if isinstance(each, MismatchError)), None)
        if mismatch is not None and "allgather" in mismatch.operations:
            refusal = self._ask_at_first(required)
            if refusal is not None:
                raise refusal from error

    def _gathered(self, required: Required, name: str, sums: Sequence[int] = ()) -> Tensor:
        """Return, for each rank: its number, its number of parameters, a checksum of its plan, its set, and its
        checksums.
        """
        if self._asked is None:
            count = len(self._names)
            compared = sums or [NOT_COMPARED] * count
            mine = [rank(), count, zlib.crc32(repr(self._plan()).encode()), *required, *compared]
            self._asked = collectives.allgather_async(torch.tensor(mine), name, self._process_set)
        try:
            gathered = self._asked.wait()
        except Exception:
            self._asked = None
            raise
        self._asked = None
        return gathered

    def _decision(self, required: Required, gathered: Tensor) -> MismatchError | None:
        values, kinds, sets, sums = gathered.tolist(), set(), {}, {}
        while values:
            of_rank, count, plan_of_rank = values[:3]
            kinds.add((count, plan_of_rank))
            sets[of_rank], sums[of_rank] = values[3 : 3 + count], values[3 + count : 3 + 2 * count]
            values = values[3 + 2 * count :]
        if len(kinds) > 1:
            name = f"{_first_step(self._names)}.plan"
            of_ranks = allgather_object((rank(), self._plan()), name=name, process_set=self._process_set)
            return MismatchError(f"the ranks' optimizers {_difference(of_ranks)}")
        differing = [text for i, name in enumerate(self._names) if (text := _differing(name, sets, i))]
        if differing:
            return MismatchError(
                f"the ranks have not frozen the same parameters: {_some(differing)}; set requires_grad alike on all "
                "ranks before the same step"
            )
        warn_about_differences(self._names, sums, _REMEDY)
        self._agreed = required
        return None


def _first_step(names: Sequence[str]) -> str:
    """Return the name of the exchange, which is the same on ranks that disagree about some parameters.

    Each optimizer has its own name, so that optimizers in several threads do not join each other's exchange.
    """
    return f"DistributedOptimizer.first_step.{min(names, default='')}"


def _difference(of_ranks: Sequence[tuple[int, Plan]]) -> str:
    """Return a description of the difference between plans that are not all equal."""
    if len({plan.what for _, plan in of_ranks}) > 1:
        differing = _some([f"rank {each} has {plan.what}" for each, plan in of_ranks])
        return f"do not reduce the same: {differing}; make the optimizer with the same arguments on all ranks"
    lacking, apart = [], []
    for (one, plan), (other, others) in itertools.permutations(of_ranks, 2):
        names = [repr(name) for name in plan.names if name not in set(others.names)]
        if names:
            lacking.append(f"rank {one} has {_some(names)}, which rank {other} lacks")
        groups = [names for names in plan.operations if len(names) > 1 and names not in others.operations]
        if groups:
            apart.append(f"rank {one} has {_some(list(map(repr, groups[0])))} in one, and rank {other} has not")
    if lacking:
        return f"do not have the same parameters: {_some(lacking)}; build the same model on all ranks"
    if apart:
        return f"do not have the same groups: {_some(apart)}; give the same `groups` on all ranks"
    return _other_order(of_ranks)


def _other_order(of_ranks: Sequence[tuple[int, Plan]]) -> str:
    for number, names in enumerate(zip(*(plan.names for _, plan in of_ranks), strict=True)):
        if len(set(names)) > 1:
            differing = [f"{name!r} on rank {each}" for (each, _), name in zip(of_ranks, names, strict=True)]
            return (
                f"have the same parameters in another order: number {number} is {_some(differing)}; give them in one "
                "order on all ranks (a Python set has another one in each process)"
            )
    return "have the same groups in another order: give `groups` in one order on all ranks"


def _differing(name: str, sets: dict[int, list[Any]], index: int) -> str:
    frozen = [str(each) for each, required in sets.items() if not required[index]]
    others = [str(each) for each, required in sets.items() if required[index]]
    if not frozen or not others:
        return ""
    return f"{name!r} is frozen on rank {', '.join(frozen)} and requires a gradient on rank {', '.join(others)}"


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more
