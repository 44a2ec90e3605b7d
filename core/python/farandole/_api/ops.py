"""Arguments of the operations: reductions, the legacy `average=`, names and roots."""

from __future__ import annotations

import enum
import warnings

from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole._runtime.call_sites import stack_level


class Kind(enum.IntEnum):
    """The collectives, with the core's numbers."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    BARRIER = 3
    ALLTOALL = 4
    REDUCESCATTER = 5
    JOIN = 6
    ADD_PROCESS_SET = 7
    REMOVE_PROCESS_SET = 8


class ReduceOp(enum.IntEnum):
    """The reductions, applied element by element; the numbers are those of the core.

    Adasum is the reduction of Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2021.
    """

    SUM = 0
    AVERAGE = 1  # sum / size of the set; of integers the exact sum, divided and truncated
    MIN = 2
    MAX = 3
    PRODUCT = 4
    ADASUM = 5  # of whole tensors: sums orthogonal parts, averages parallel parts; floats only


Sum = ReduceOp.SUM
Average = ReduceOp.AVERAGE
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
Adasum = ReduceOp.ADASUM


def reduction(average: bool | ReduceOp | None, op: ReduceOp | int | None) -> ReduceOp:
    """Return the reduction for the arguments `op` and `average` (legacy) of an allreduce; Average by default.

    Raises:
        ValueError: both are given, `op` is no reduction, or `average` is one.
    """
    if average is None:
        if op is None:
            return ReduceOp.AVERAGE
        if op.__class__ is ReduceOp:
            return op
        try:
            return ReduceOp(op)
        except ValueError:
            known = ", ".join(each.name.capitalize() for each in ReduceOp)
            raise ArgumentError(f"op={op!r} is no reduction; choose one of {known}") from None
    if op is not None:
        raise ArgumentError(f"average={average!r} and op={op!r} are both given; leave out average=")
    if isinstance(average, ReduceOp):
        given = average.name.capitalize()
        raise ArgumentError(f"average={given} is a reduction: pass it as op={given}; average= is True or False")
    if _is_first():
        text = "average= is deprecated; use op=Average or op=Sum instead"
        warnings.warn(text, DeprecationWarning, stacklevel=stack_level())
    return ReduceOp.AVERAGE if average else ReduceOp.SUM


def _is_first() -> bool:
    """Return whether this process is rank 0 or not a rank, so that a warning is shown only once per job."""
    from farandole._start import world  # which imports this module

    return not world.is_initialized() or world.rank() == 0


def check_root(root_rank: int, size: int) -> None:
    """Raises ValueError unless `root_rank` is a rank of a world of `size`."""
    try:
        is_there = 0 <= root_rank < size
    except TypeError:
        raise ArgumentTypeError(f"root_rank must be a whole number, not {root_rank!r}") from None
    if not is_there:
        raise ArgumentError(f"root_rank={root_rank} is not a rank of this world; its ranks are 0 to {size - 1}")


def check_linear(op: ReduceOp, what: str, detached: str) -> None:
    """Raise ValueError for a reduction of `what` that has no gradient; `detached` leaves a tensor out of them."""
    if op not in (Sum, Average):
        raise ArgumentError(
            f"{what} with op={op.name.capitalize()} has no gradient: give it {detached}, or use Sum or Average"
        )


def check_not_adasum(op: ReduceOp, what: str) -> None:
    """Raises ValueError for Adasum, which is a reduction of whole tensors."""
    if op is ReduceOp.ADASUM:
        raise ArgumentError(f"{what} cannot do op=Adasum, which only allreduce can; choose another reduction")


def predivide_factors(op: ReduceOp, factor: float) -> tuple[float, float]:
    """Return (prescale, postscale), which divide by `factor` before the sum of an average and undo that after it.

    Raises ValueError where the result would not be an average, or `factor` is not positive.
    """
    if factor == 1.0:
        return 1.0, 1.0
    if op is not ReduceOp.AVERAGE:
        raise ArgumentError(f"gradient_predivide_factor={factor} needs op=Average, not {op.name.capitalize()}")
    if not factor > 0:
        raise ArgumentError(f"gradient_predivide_factor={factor} must be positive")
    return 1.0 / factor, factor
