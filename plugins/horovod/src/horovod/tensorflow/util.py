"""Helpers of Horovod's that programs import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.util import _cache

_executing_eagerly = tf.executing_eagerly
_has_eager = True
_make_subgraph = tf.function


def vars_to_refs(variables: Sequence[Any]) -> tuple[Any, ...]:
    """References of variables: they can be compared and hashed, as keys of a cache."""
    return tuple(variable.ref() for variable in variables)


def refs_to_vars(refs: Sequence[Any]) -> list[Any]:
    """The variables of `vars_to_refs`."""
    return [ref.deref() for ref in refs]
