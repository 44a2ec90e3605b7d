"""Arguments that the optimizers of all plugins share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from textwrap import dedent, indent
from typing import Any, TypeVar

from farandole._api.ops import Average, ReduceOp, Sum

Variable = Any
Groups = int | Sequence[Sequence[Variable]]
Made = TypeVar("Made")  # a distributed tape or optimizer


def check_op(op: ReduceOp) -> ReduceOp:
    """The reduction. Raises ValueError for one that Keras's optimizers cannot be given."""
    if op not in (Average, Sum):
        raise ValueError(f"an optimizer of Keras takes op=Average or op=Sum, not {ReduceOp(op).name.capitalize()}")
    return op


def chosen_groups(num_groups: int, groups: Groups | None) -> Groups:
    """The groups, of which `num_groups` is the older form."""
    if groups is None:
        return num_groups
    if isinstance(groups, int) or all(isinstance(each, list | tuple) for each in groups):
        return groups
    raise ValueError("groups must be a number, or lists of variables")


def variables_of(layers: Any) -> list[Variable]:
    """Those of one layer, or of several. Raises ValueError for what is no layer of Keras."""
    listed = layers if isinstance(layers, list | tuple) else [layers] if layers is not None else []
    for each in listed:
        if not hasattr(each, "trainable_weights"):
            raise ValueError(f"local_layers must be layers of Keras, not {type(each).__name__}")
    return [weight for layer in listed for weight in layer.trainable_weights]


def with_local_layers(
    distribute: Callable[..., Made], register: str, drop: str = "", example: str = ""
) -> Callable[..., Made]:
    """The function, which also takes `local_layers`, as the last argument but one as Horovod has it.

    Args:
        distribute: makes something distributed, and returns it.
        register: the function of what it returns that leaves a variable's gradient to each rank.
        drop: an argument that has no place here; it can still be given by its name.
        example: the lines of an example for its docstring.
    """
    parameters = [each for each in signature(distribute).parameters.values() if each.name != drop]
    parameters.insert(-1, Parameter("local_layers", Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=Any))
    shape = Signature(parameters)

    @wraps(distribute)
    def partial(*args: Any, **options: Any) -> Made:
        dropped = {drop: options.pop(drop)} if drop in options else {}
        given = shape.bind(*args, **options).arguments
        variables = variables_of(given.pop("local_layers", None))
        made = distribute(**given, **dropped)
        for variable in variables:
            getattr(made, register)(variable)
        return made

    del partial.__wrapped__  # whose signature another is
    partial.__signature__ = shape  # type: ignore[attr-defined]
    partial.__doc__ = f"""`{distribute.__name__}` that leaves the gradients of some layers to each rank.

    It takes the same arguments. `local_layers` is a layer or a list of layers, which must have their variables already.
    Their gradients are divided by the number of ranks unless `scale_local_gradients=False`.
    {_section(example)}"""
    return partial


def _section(example: str) -> str:
    return f"\n    Example:\n{indent(dedent(example).strip(), ' ' * 8)}\n    " if example else ""
