"""Makes the names of a plugin's module `keras`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NamedTuple

from farandole._keras.callbacks import callbacks
from farandole._keras.elastic import elastic
from farandole._keras.exchange import Framework
from farandole._keras.training import Training, training
from farandole._keras.values import Values, values


class Built(NamedTuple):
    """The members of a plugin's module `keras`, and their names."""

    training: Training
    values: Values
    callbacks: ModuleType
    elastic: ModuleType
    names: list[str]


def build(keras: Any, framework: Framework, module: str) -> Built:
    """The functions and callbacks for one Keras on one framework.

    They say that they come from `module`, where pickle finds them. The callbacks are `module`.callbacks, which can be
    imported by that name, and so can `module`.elastic.
    """
    functions, collectives = training(keras, framework), values(framework)
    for each in (*functions, *collectives):
        each.__module__, each.__qualname__ = module, each.__name__
    made = callbacks(keras, framework, f"{module}.callbacks")
    of_states = elastic(keras, framework, f"{module}.elastic")
    sys.modules |= {each.__name__: each for each in (made, of_states)}
    names = [*Training._fields, *Values._fields, "callbacks", "elastic"]
    return Built(functions, collectives, made, of_states, names)
