"""Tapes whose gradients are reduced over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import tensorflow as tf
from farandole import Average, ProcessSet, ReduceOp
from farandole.plugin import Compressor, extend
from farandole.plugin.keras import ExchangeOptions, Groups, chosen_groups, with_local_layers

from farandole_tensorflow._adapter import Tensor
from farandole_tensorflow._exchange import Exchange
from farandole_tensorflow._operations import Compression
from farandole_tensorflow._perform import unconverted

if TYPE_CHECKING:  # the user's class, which type checkers cannot add to, is this or derives from it
    _Tape: TypeAlias = tf.GradientTape
else:
    _Tape = object


def DistributedGradientTape(  # the name that Horovod's users know
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor[Tensor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> Distributed:
    """Make the `gradient` function of a tf.GradientTape reduce what it returns over the ranks; returns the tape.

    `hvd.DistributedGradientTape(tape)` may come before or after what is recorded. Gradients are in the order of the
    sources, which must be alike on all ranks. Within `tf.function` each gradient is reduced as soon as it is computed.

    Args:
        gradtape: a tf.GradientTape, persistent or not.
        device_dense: not needed; accepted because Horovod does.
        device_sparse: the same.
        compression: what travels: `Compression.none`, `fp16` or `bf16`.
        sparse_as_dense: convert tf.IndexedSlices to dense gradients; without it, the rows of all ranks are gathered.
        op: Average, Sum, Min, Max, Product or Adasum, whose source `ReduceOp` names.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        num_groups: the older form of an integer `groups`.
        groups: a number of groups, or lists of variables: gradients of a group are reduced as one operation.
        process_set: the ranks whose gradients are reduced with each other, by default all. On the others nothing is
            added.
        scale_local_gradients: divide the gradients of local sources, see `register_local_source`, by the number of
            ranks.

    Raises:
        ValueError: no tape, one that is distributed already, or an argument out of range.

    Example:
        >>> weight = tf.Variable([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(weight * hvd.rank())
        >>> hvd.DistributedGradientTape(tape).gradient(loss, weight).numpy().tolist()
        [0.5, 0.5]
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"expected a tf.GradientTape, not {type(gradtape).__name__}")
    if isinstance(gradtape, Distributed):
        raise ValueError("this tape is distributed already; wrap it once")
    options = ExchangeOptions(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide_factor=gradient_predivide_factor,
        groups=chosen_groups(num_groups, groups),
        process_set=process_set,
        scale_local=scale_local_gradients,
    )
    extend(gradtape, Distributed)
    distributed = cast(Distributed, gradtape)
    distributed._farandole = Exchange(options)
    return distributed


_EXAMPLE_OF_PARTIAL = """
    >>> layer = tf.keras.layers.Dense(1, use_bias=False)
    >>> layer.build((1, 1))
    >>> with tf.GradientTape() as tape:
    ...     loss = layer(tf.ones((1, 1)) * hvd.rank())
    >>> partial = hvd.PartialDistributedGradientTape(tape, local_layers=layer, scale_local_gradients=False)
    >>> [gradient] = partial.gradient(loss, layer.trainable_weights)
    >>> float(gradient[0, 0]) == hvd.rank()  # DistributedGradientTape would make both 0.5
    True
"""
PartialDistributedGradientTape = with_local_layers(
    DistributedGradientTape, "register_local_source", example=_EXAMPLE_OF_PARTIAL
)
"""`DistributedGradientTape` that also takes `local_layers`: layers whose gradients stay with each rank."""
PartialDistributedGradientTape.__name__ = PartialDistributedGradientTape.__qualname__ = "PartialDistributedGradientTape"


class Distributed(_Tape):  # type: ignore[misc, unused-ignore]  # TensorFlow is not read
    """The additions of a distributed tape; mixed into the user's class."""

    _farandole: Exchange

    def register_local_source(self, source: tf.Variable) -> None:
        """Leave the gradient of this variable to each rank."""
        self._farandole.register_local_var(source)

    @unconverted
    def gradient(  # type: ignore[override, unused-ignore]
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """The reduced gradients, in the structure of `sources`; arguments as in tf.GradientTape.

        `use_generic_names` is not needed, names are always generic; accepted because Horovod does, which has it in the
        place of `unconnected_gradients`: a bool there is taken for it.
        """
        if isinstance(unconnected_gradients, bool):
            unconnected_gradients = tf.UnconnectedGradients.NONE
        found = super().gradient(target, sources, output_gradients, unconnected_gradients)
        reduced = self._farandole.reduce(_flat(found), _flat(sources))
        return tf.nest.pack_sequence_as(sources, reduced) if _is_nested(sources) else reduced[0]


def _is_nested(sources: Any) -> bool:
    return isinstance(sources, list | tuple | dict)


def _flat(structure: Any) -> list[Any]:
    return list(tf.nest.flatten(structure)) if _is_nested(structure) else [structure]
