"""An optimizer of Keras whose gradients go through an Exchange before it applies them.

    fit, minimize, apply_gradients --> apply --Exchange.step--> reduce --> the user's own apply     Keras 3
                                       apply_gradients --Exchange.step--> ...                       Keras 2

The optimizer stays the object it is, in a subclass of its class with the same name, module and configuration: learning
rates, slots and iterations are kept, and what is saved loads where there is no Farandole.

A LossScaleOptimizer that is put around it, as Keras does under the policy mixed_float16, decides by the gradients
whether to apply them at all. All ranks must decide alike, so the exchange then takes place in the outer one, which sees
the reduced gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import signature
from typing import Any

from farandole._api.mixing import extend
from farandole._keras.exchange import Exchange, Gradient
from farandole._keras.private import create_state, own_variables

Optimizer = Any  # keras.optimizers.Optimizer
Variable = Any


class Distributed:
    """The additions of a distributed optimizer; mixed into the user's class."""

    _farandole: Exchange
    _farandole_inside = False  # of an exchange: the optimizer, or the one around it, applies reduced gradients

    def register_local_var(self, var: Variable) -> None:
        """Leave the gradient of this variable to each rank, unreduced."""
        self._farandole.register_local_var(var)

    @classmethod
    def from_config(cls, config: dict[str, Any], *args: Any, **kwargs: Any) -> Optimizer:
        """A plain optimizer, for the configuration is one."""
        plain: Any = cls.__bases__[1]
        return plain.from_config(config, *args, **kwargs)


class _OfKeras3(Distributed):
    """`fit` and `apply_gradients` end in `apply`."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        plain: Any = super()
        gradients, given = list(grads), None if trainable_variables is None else list(trainable_variables)
        variables = own_variables(self) if given is None else given
        if self._farandole_inside or not gradients or len(variables) != len(gradients):
            return plain.apply(gradients, given)

        def build() -> None:
            optimizer: Any = self
            if not optimizer.built:
                optimizer.build(variables)
                optimizer.built = True

        def apply(reduced: list[Gradient | None]) -> Any:
            with _inside(self):
                return plain.apply(reduced, given)

        def skip() -> Any:
            self.iterations.assign_add(1)  # type: ignore[attr-defined]

        return self._farandole.step(gradients, variables, build, apply, skip)


class _OfKeras2(Distributed):
    """`fit` and `minimize` end in `apply_gradients`, which is told when the gradients are aggregated already."""

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        plain: Any = super()
        pairs = list(grads_and_vars)
        if self._farandole_inside or not pairs or _are_aggregated(plain.apply_gradients, pairs, args, kwargs):
            return plain.apply_gradients(pairs, *args, **kwargs)
        gradients, variables = map(list, zip(*pairs, strict=True))

        def build() -> None:
            create_state(self, variables)

        def apply(reduced: list[Gradient | None]) -> Any:
            with _inside(self):
                return plain.apply_gradients(list(zip(reduced, variables, strict=True)), *args, **kwargs)

        def skip() -> Any:
            self.iterations.assign_add(1)  # type: ignore[attr-defined]

        return self._farandole.step(gradients, variables, build, apply, skip)


def _are_aggregated(apply_gradients: Callable[..., Any], pairs: Any, args: Any, kwargs: Any) -> bool:
    """Return whether the caller says so, in the words of either kind of Keras 2's optimizers."""
    try:
        given = signature(apply_gradients).bind(pairs, *args, **kwargs).arguments
    except TypeError:  # which apply_gradients itself explains better
        return False
    given = {**given, **given.get("kwargs", {})}
    return bool(given.get("skip_gradients_aggregation")) or not given.get("experimental_aggregate_gradients", True)


def distribute(keras: Any, optimizer: Optimizer, exchange: Exchange) -> Optimizer:
    """Make `optimizer` reduce its gradients by `exchange` before each update, and return it.

    Raises:
        ValueError: no optimizer of this Keras, or one that is distributed already.
    """
    if isinstance(optimizer, Distributed):
        raise ValueError("this optimizer is distributed already; wrap it once")
    if not hasattr(optimizer, "apply_gradients") or not hasattr(optimizer, "get_config"):
        hint = f": keras.optimizers.get({optimizer!r}) makes one" if isinstance(optimizer, str) else ""
        raise ValueError(f"expected an optimizer of Keras, not {type(optimizer).__name__}{hint}")
    _watch_loss_scaling(keras)
    inner = _inner(optimizer)
    if isinstance(inner, Distributed):
        raise ValueError("the optimizer inside this LossScaleOptimizer is distributed already; wrap it once")
    _become_distributed(keras, optimizer, exchange)
    return optimizer


def is_distributed(optimizer: Optimizer) -> bool:
    """Return whether the gradients of this optimizer are reduced."""
    return isinstance(optimizer, Distributed)


def innermost(optimizer: Optimizer) -> Optimizer:
    """The optimizer itself, inside of all that scale its loss."""
    inner = _inner(optimizer)
    return optimizer if inner is None else innermost(inner)


def _inner(optimizer: Optimizer) -> Optimizer | None:
    return getattr(optimizer, "inner_optimizer", None)


@contextlib.contextmanager
def _inside(optimizer: Optimizer) -> Iterator[None]:
    """A context in which the optimizer, and those inside it, apply gradients as they are."""
    some = [each for each in (optimizer, _inner(optimizer)) if isinstance(each, Distributed)]
    for each in some:
        object.__setattr__(each, "_farandole_inside", True)
    try:
        yield
    finally:
        for each in some:
            object.__setattr__(each, "_farandole_inside", False)


def _become_distributed(keras: Any, optimizer: Optimizer, exchange: Exchange) -> None:
    plain: Any = type(optimizer)
    mixin = _OfKeras3 if hasattr(plain, "apply") else _OfKeras2
    public = getattr(keras.optimizers, plain.__name__, None) is plain
    module = "keras.optimizers" if public else plain.__module__
    object.__setattr__(optimizer, "_farandole", exchange)  # past Keras, which would track it as a part of the model
    _register_as(keras, extend(optimizer, mixin, module), plain)


def _register_as(keras: Any, made: type, plain: type) -> None:
    """Where the user has registered the class for saving: save the distributed one under its name, load the plain."""
    name = keras.utils.get_registered_name(plain)
    package, _, short = name.rpartition(">")
    if package and keras.utils.get_registered_name(made) != name:
        known = keras.utils.get_custom_objects()
        known.pop(name, None)
        keras.utils.register_keras_serializable(package, short)(made)
        known[name] = plain


def _watch_loss_scaling(keras: Any) -> None:
    """Make each LossScaleOptimizer that is put around a distributed optimizer take over its exchange."""
    scaling = keras.mixed_precision.LossScaleOptimizer
    for kind in (scaling, *scaling.__subclasses__()):
        init = vars(kind).get("__init__")
        if init is not None and not hasattr(init, "_farandole_watches"):
            kind.__init__ = _watched(keras, init)


def _watched(keras: Any, init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        inner = _inner(self)
        if isinstance(inner, Distributed) and not isinstance(self, Distributed):
            _become_distributed(keras, self, inner._farandole)

    watched._farandole_watches = True  # type: ignore[attr-defined]
    return watched
