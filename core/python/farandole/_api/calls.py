"""The parameters of one call, which must be the same on all ranks, made from the arguments of the public functions.

If one of these functions raises, it has refused the call of that name and set; see refusals.py.
"""

from __future__ import annotations

from contextlib import suppress

from farandole._api.errors import ArgumentError, ArgumentTypeError
from farandole._api.ops import ReduceOp, check_root, reduction
from farandole._api.process_sets import ProcessSet, usable_id
from farandole._api.refusals import refuse
from farandole._start import world

# In the order of the core's arguments: name, reduce, root, prescale, postscale, process set.
Parameters = tuple[str, int, int, float, float, int]
Image = tuple[type, int, bytes, bytes]
_AVERAGE = ReduceOp.AVERAGE  # saves 70 ns for the lookup of the member


def reducing(
    average: bool | None,
    name: str | None,
    op: ReduceOp | int | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet | None,
) -> Parameters:
    """Check and encode the arguments of an allreduce or reducescatter."""
    try:
        if average is None and op is None:
            reduce = _AVERAGE  # without a call, which costs 90 ns
        else:
            reduce = op if op.__class__ is ReduceOp and average is None else reduction(average, op)
        number = 0 if process_set is None else usable_id(process_set)
    except Exception as error:
        _refuse(error, name, process_set)
        raise
    return name or "", reduce, 0, prescale, postscale, number


def rooted(root_rank: int, name: str | None, process_set: ProcessSet | None) -> Parameters:
    """Check and encode the arguments of a broadcast."""
    try:
        number = usable_id(process_set)
        check_root(root_rank, world.size())
    except Exception as error:
        _refuse(error, name, process_set)
        raise
    return name or "", 0, root_rank, 1.0, 1.0, number


def plain(name: str | None, process_set: ProcessSet | None) -> Parameters:
    """Check and encode the arguments of any other operation."""
    return name or "", 0, 0, 1.0, 1.0, usable_id(process_set)


def _refuse(error: Exception, name: str | None, process_set: ProcessSet | None) -> None:
    with suppress(Exception):  # without a set this rank has no turn
        refuse(error, name, usable_id(process_set))


def refuse_call(error: Exception, parameters: Parameters) -> None:
    """`refuse` a call that has raised. Raises a clearer error if an argument has a wrong type."""
    try:
        if isinstance(error, TypeError):
            check_types(parameters)
    except TypeError as clearer:
        error = clearer
        raise
    finally:
        refuse(error, parameters[0], parameters[5])


def check_types(parameters: Parameters) -> None:
    """Raise a TypeError that names the argument of a wrong type, if there is one. For a call that the core refused."""
    name, _, root, prescale, postscale, _ = parameters
    if not isinstance(name, str):
        raise ArgumentTypeError(f"name must be a string, not {name!r}") from None
    if not hasattr(root, "__index__"):
        raise ArgumentTypeError(f"root_rank must be a whole number, not {root!r}") from None
    for what, factor in (("prescale_factor", prescale), ("postscale_factor", postscale)):
        if not hasattr(factor, "__float__") and not hasattr(factor, "__index__"):
            raise ArgumentTypeError(f"{what} must be a number, not {factor!r}") from None


def check_sequence(tensors: object) -> None:
    """Raise TypeError or ValueError if the argument is not a group of tensors."""
    if not isinstance(tensors, list | tuple):
        raise ArgumentTypeError(f"a grouped operation takes a list or tuple of tensors, not {type(tensors).__name__}")
    if not tensors:
        raise ArgumentError("a grouped operation needs at least one tensor")
