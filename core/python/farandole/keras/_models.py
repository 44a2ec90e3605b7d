"""Models that were saved with a distributed optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from farandole.keras._optimizer import is_distributed


def load_model(
    keras: Any,
    wrap: Callable[[Any], Any],
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A saved model whose optimizer, with its state, is distributed by `wrap`.

    Args:
        keras: the module.
        wrap: makes an optimizer distributed.
        filepath: as in `keras.models.load_model`.
        custom_optimizers: classes of optimizers that the file names, other than Keras's own.
        custom_objects: everything else of that kind, by name.
        options: of `keras.models.load_model`.
    """
    objects = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**objects, **(custom_objects or {})}, **options)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        wrap(optimizer)
    return model
