"""The uses of Keras that Keras does not promise. Checked on Keras 2.13 and 3.15 with each change.

| name | of | what for | where |
|---|---|---|---|
| `Variable._value` | Keras 3 | the framework's variable inside | here |
| `Optimizer._trainable_variables` | Keras 3 | those that `apply` means when it is given none | here |
| `Optimizer._create_all_weights` | Keras 2, the older optimizers | creates what `build` creates elsewhere | here |
| `SGD._momentums` | Keras 2, the older optimizers | the momenta, to correct them | here |
| `Callback._supports_tf_logs` | Keras 2 | is set: logs need not be fetched for us | callbacks.py, learning_rate.py |

A rule of tests/architecture lets no other module reach for such names.
"""

from __future__ import annotations

from typing import Any


def key_of(variable: Any) -> int:
    """The same for a variable of Keras 3 and the framework's inside it."""
    return id(getattr(variable, "_value", variable))


def own_variables(optimizer: Any) -> list[Any]:
    """The variables that an optimizer of Keras 3 updates."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def create_state(optimizer: Any, variables: Any) -> None:
    """Create what the optimizer remembers of these variables."""
    create = getattr(optimizer, "_create_all_weights", None) or optimizer.build
    create(variables)


def momenta_of(optimizer: Any) -> list[Any]:
    """The variables in which an SGD sums up its steps; none where it keeps them as slots."""
    found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None)
    return list(found or [])
