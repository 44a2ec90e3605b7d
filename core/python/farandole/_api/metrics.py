"""Averages of numbers over the ranks, such as an epoch's loss. Needs no framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, SupportsFloat, SupportsIndex, TypeAlias, cast, overload

from farandole._api.errors import ArgumentError, ArgumentTypeError, FarandoleError, MismatchError
from farandole._api.objects import allgather_object
from farandole._api.process_sets import ProcessSet

Number: TypeAlias = SupportsFloat | SupportsIndex
_Outcome: TypeAlias = tuple[float, dict[str, float]] | FarandoleError  # weight and metrics, or why there are none
# To something that float takes: of NumPy's and PyTorch's tensors, MXNet's, TensorFlow's variables, and the rest.
_CONVERSIONS: tuple[Callable[[Any], Any], ...] = (
    methodcaller("item"),
    methodcaller("asscalar"),
    lambda value: value.numpy().item(),
    lambda value: value,
)
_ALONE = "the value"  # stands for the name of a number that is given without one


@overload
def average_metrics(
    metrics: Mapping[str, Number],
    *,
    weight: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> dict[str, float]: ...


@overload
def average_metrics(
    metrics: Number, *, weight: float = 1.0, name: str | None = None, process_set: ProcessSet | None = None
) -> float: ...


def average_metrics(
    metrics: Mapping[str, Number] | Number,
    *,
    weight: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> dict[str, float] | float:
    """Average the ranks' numbers; the result is equal on every rank of the set.

    All ranks give the same names, in any order; ranks that do not all raise MismatchError. Sums are taken in float64.

    Args:
        metrics: a mapping of names to Python's numbers, NumPy's, or tensors of one element; or one of these alone.
        weight: how much this rank's numbers count, such as the number of its samples; 0 for a rank without any.
        name: as in every operation; unnamed calls are matched by their order.
        process_set: as in every operation.

    Returns:
        A dict with the names in this rank's order; of one number, its average.

    Raises:
        ArgumentTypeError, ArgumentError: a value or weight of this rank that is no number; the other ranks raise
            MismatchError, which quotes it.
        MismatchError: the ranks have other names, or all weights are 0.

    Example:
        >>> hvd.average_metrics({"loss": 1.0 + hvd.rank(), "accuracy": np.float32(0.5)})
        {'loss': 1.5, 'accuracy': 0.5}
        >>> hvd.average_metrics(hvd.rank(), weight=1 + 2 * hvd.rank())  # rank 1 has 3 of the 4 samples
        0.75
    """
    is_alone = not isinstance(metrics, Mapping)
    mine = _outcome({_ALONE: metrics} if is_alone else metrics, weight)
    outcomes = allgather_object(mine, name, process_set)  # a rank that refuses takes part: the others do not wait
    if isinstance(mine, FarandoleError):
        raise mine
    ranks = range(len(outcomes)) if process_set is None else process_set.ranks
    averages = _averages(outcomes, ranks)
    return averages[_ALONE] if is_alone else {key: averages[key] for key in mine[1]}


def _outcome(metrics: Any, weight: float) -> _Outcome:
    try:
        numbers = {key: _number(key, value) for key, value in metrics.items()}
        share = _number("weight", weight)
    except ArgumentTypeError as error:
        return error
    if not (share >= 0 and math.isfinite(share)):
        return ArgumentError(f"average_metrics needs a weight from 0 on, such as a number of samples, not {weight!r}")
    return share, numbers


def _number(key: object, value: Any) -> float:
    if not isinstance(key, str):
        raise ArgumentTypeError(f"average_metrics takes names that are strings, not {key!r}")
    for convert in _CONVERSIONS if not isinstance(value, str | bytes) else ():
        with suppress(Exception):  # each framework has its own for several elements, and in a graph
            return float(convert(value))
    shape = getattr(value, "shape", None)
    shown = f"a {type(value).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
    raise ArgumentTypeError(
        f"average_metrics takes numbers and tensors of one element, and {key!r} is {shown}: reduce tensors of "
        "several elements with allreduce, and call average_metrics outside of graphs"
    )


def _averages(outcomes: Sequence[_Outcome], ranks: Sequence[int]) -> dict[str, float]:
    """Return the averages. Pure: the result, or the error, is the same on all ranks."""
    for rank, outcome in zip(ranks, outcomes, strict=True):
        if isinstance(outcome, FarandoleError):
            raise MismatchError(f"rank {rank} has no metrics to average: {outcome}")
    given = cast("Sequence[tuple[float, dict[str, float]]]", outcomes)
    first = given[0][1]
    for rank, (_, metrics) in zip(ranks, given, strict=True):
        if metrics.keys() != first.keys():
            raise MismatchError(
                f"the ranks have different metrics to average: rank {ranks[0]} has {_listed(first)}, and rank {rank} "
                f"has {_listed(metrics)}; give all ranks the same names"
            )
    total = math.fsum(weight for weight, _ in given)
    if total == 0:
        raise MismatchError("the weights of all ranks are 0, so there is nothing to average: skip it on all ranks")
    return {key: sum(weight * metrics[key] for weight, metrics in given if weight) / total for key in first}


def _listed(metrics: Mapping[str, float]) -> str:
    return ", ".join(sorted(metrics)) or "none"
