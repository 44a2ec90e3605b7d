"""Whether the ranks reduce the same parameters; asked only in the first step, and where a rank's have changed.

first step --own set, allgathered beside the reductions--> the sets of all: equal, or an error on all
as in the step before --> nothing is sent
changed --own set, allgathered under the name of a reduction--> likewise

Ranks whose set has not changed begin that reduction: then the core tells all that they disagree, and all exchange their
sets to say about which parameter.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from farandole import Handle, MismatchError, ProcessSet, allgather_object, rank

from farandole_torch._adapter import Tensor, collectives

Required = tuple[bool, ...]  # of each parameter, whether it requires a gradient
_FIRST = "DistributedOptimizer.first_step"
_NAMED = 3  # parameters in a message


@dataclass
class Refusal:
    """Why the ranks cannot go on."""

    error: MismatchError
    expected: Sequence[int] | None = ()  # what ranks wait for all the same; None: what others cannot give


class Agreement:
    """What the ranks agree to reduce."""

    def __init__(self, process_set: ProcessSet | None) -> None:
        self.required: Required | None = None  # of the last step
        self._process_set = process_set
        self._asked: Handle[Tensor] | None = None  # what Ctrl-C has interrupted is taken up again

    def ask_at_first(self, names: Sequence[str], required: Required) -> Refusal | None:
        """Compare this rank's set with those of all others, whose first step it is, too; blocks."""
        return self._judged(names, required, self._ask(names, required, _FIRST))

    def ask(self, names: Sequence[str], required: Required, operation: str) -> Refusal | None:
        """Likewise, where others may not ask, but begin the reduction of this name.

        Raises MismatchError if they do: `explain` follows when all operations that they wait for are complete.
        """
        refusal = self._judged(names, required, self._ask(names, required, operation))
        return refusal and Refusal(refusal.error)  # nothing is submitted yet

    def explain(self, names: Sequence[str], required: Required, error: Exception) -> None:
        """Where `error` is that only some ranks have asked, compare the sets. Raises MismatchError if they differ."""
        told = next((each for each in (error, error.__cause__) if isinstance(each, MismatchError)), None)
        if told is not None and "allgather" in told.operations:
            refusal = self._judged(names, required, self._ask(names, required, _FIRST))
            if refusal is not None:
                raise refusal.error from error

    def _ask(self, names: Sequence[str], required: Required, name: str) -> Tensor:
        """Of each rank: its number, that of its parameters, what its names amount to, and its set."""
        if self._asked is None:
            mine = [rank(), len(names), zlib.crc32("\0".join(names).encode()), *required]
            self._asked = collectives.allgather_async(torch.tensor(mine), name, self._process_set)
        try:
            gathered = self._asked.wait()
        except Exception:
            self._asked = None
            raise
        self._asked = None
        return gathered

    def _judged(self, names: Sequence[str], required: Required, gathered: Tensor) -> Refusal | None:
        values, kinds, sets = gathered.tolist(), set(), {}
        while values:
            of_rank, count, names_of_rank = values[:3]
            kinds.add((count, names_of_rank))
            sets[of_rank], values = values[3 : 3 + count], values[3 + count :]
        if len(kinds) > 1:
            return Refusal(self._other_names(names), None)
        told = [text for i, name in enumerate(names) if (text := _differing(name, sets, i))]
        if told:
            return Refusal(
                MismatchError(
                    f"the ranks have not frozen the same parameters: {_some(told)}; set requires_grad alike on all "
                    "ranks before the same step"
                ),
                [i for i in range(len(names)) if any(each[i] for each in sets.values())],
            )
        self.required = required
        return None

    def _other_names(self, names: Sequence[str]) -> MismatchError:
        """Collective; after it has come out that they differ."""
        of_ranks = allgather_object((rank(), list(names)), name=f"{_FIRST}.names", process_set=self._process_set)
        told = []
        for one, other in itertools.permutations(of_ranks, 2):
            lacking = [repr(name) for name in one[1] if name not in set(other[1])]
            if lacking:
                told.append(f"rank {one[0]} has {_some(lacking)}, which rank {other[0]} lacks")
        text = _some(told) or "their order differs"
        return MismatchError(f"the ranks' optimizers have not the same parameters: {text}")


def _differing(name: str, sets: dict[int, list[Any]], index: int) -> str:
    frozen = [str(each) for each, required in sets.items() if not required[index]]
    others = [str(each) for each, required in sets.items() if required[index]]
    if not frozen or not others:
        return ""
    return f"{name!r} is frozen on rank {', '.join(frozen)} and requires a gradient on rank {', '.join(others)}"


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more
