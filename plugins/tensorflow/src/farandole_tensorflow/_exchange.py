"""How gradients are reduced over the ranks: what optimizers and tapes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import farandole
import tensorflow as tf
from farandole import Average, ProcessSet, ReduceOp
from farandole.plugin import Compressor, check_compressor, even_groups, predivide_factors, reduction

from farandole_tensorflow._dtypes import Compression, Tensor
from farandole_tensorflow._operations import allreduce, grouped_allreduce
from farandole_tensorflow._perform import unconverted

Gradient = Any  # a tensor, tf.IndexedSlices, or None
Variable = Any  # of TensorFlow, or of Keras 3
Groups = int | Sequence[Sequence[Variable]] | None


class Exchange:
    """Of the gradients of one optimizer or tape.

    Gradients are paired with those of the other ranks by their place in the list, since names of variables count what
    only one rank may have made. Those that are None stay so. In a world of one nothing is added to the graph.
    """

    def __init__(
        self,
        *,
        compression: Compressor[Tensor] = Compression.none,
        sparse_as_dense: bool = False,
        passes: int = 1,
        op: ReduceOp = Average,
        predivide_factor: float = 1.0,
        average_passes: bool = False,
        groups: Groups = None,
        process_set: ProcessSet | None = None,
        scale_local: bool = True,
        name: str | None = None,
    ) -> None:
        """Check the arguments, see `DistributedOptimizer`."""
        self._op = reduction(None, op)
        self._factors = predivide_factors(self._op, predivide_factor)
        check_compressor(compression)
        if passes < 1:
            raise ValueError(f"backward_passes_per_step={passes} must be at least 1")
        if isinstance(groups, int):
            even_groups(0, groups)
        self._compression, self._sparse_as_dense, self._groups = compression, sparse_as_dense, groups
        self._passes, self._average_passes = passes, average_passes
        self._process_set, self._scale_local = process_set, scale_local
        self._name = f"{name}.gradient" if name else "gradient"
        self._local: set[int] = set()
        self._sums: list[Any] = []  # of the gradients, dense, since the last update
        self._count: Any = None  # how many passes are in them

    @property
    def passes(self) -> int:
        """How many backward passes come before an update."""
        return self._passes

    def register_local_var(self, variable: Variable) -> None:
        """Leave the gradient of this variable to each rank."""
        self._local.add(key_of(variable))

    @unconverted
    def reduce(self, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> list[Gradient]:
        """The gradients of all ranks, one for each variable."""
        results = list(gradients)
        if self.is_alone():
            return results
        wanted = []
        for place, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if key_of(variable) in self._local:
                results[place] = self._own(gradient)
            else:
                wanted.append(place)
        for places in self._grouped(wanted, gradients, variables):
            some = [self._dense(gradients[place]) for place in places]
            for place, result in zip(places, self._reduced(some, places), strict=True):
                results[place] = result
        return results

    @unconverted
    def step(
        self,
        gradients: Sequence[Gradient],
        variables: Sequence[Variable],
        build: Callable[[], None],
        apply: Callable[[list[Gradient]], Any],
        skip: Callable[[], Any],
    ) -> Any:
        """See farandole.keras.Exchange."""
        if self._passes == 1:
            return apply(self.reduce(gradients, variables))
        with tf.init_scope():
            build()
        count = self.add(gradients, variables)

        def update() -> Tensor:
            apply(self.reduce(self.take(gradients), variables))
            return tf.constant(True)

        def wait() -> Tensor:
            skip()
            return tf.constant(False)

        tf.cond(count >= self._passes, update, wait)
        return None

    def add(self, gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Tensor:
        """Add the gradients of one pass to the sums; returns of how many passes they are."""
        if self._count is None:
            with tf.init_scope():
                self._count = tf.Variable(0, trainable=False, name="backward_passes")
                self._sums = [
                    None
                    if gradient is None
                    else tf.Variable(tf.zeros(variable.shape, gradient.dtype), trainable=False, name="gradients")
                    for gradient, variable in zip(gradients, variables, strict=True)
                ]
        if len(self._sums) != len(gradients):
            raise ValueError(
                f"there are {len(gradients)} gradients in this pass, and were {len(self._sums)} in the one before: "
                "with backward_passes_per_step they must be those of the same variables"
            )
        dense = [None if each is None else tf.convert_to_tensor(each) for each in gradients]
        with _after(total.assign_add(each, read_value=False) for total, each in _pairs(self._sums, dense)):
            counted = self._count.assign_add(1, read_value=False)
        with _after([counted]):
            return self._count.read_value()

    def take(self, gradients: Sequence[Gradient]) -> list[Gradient]:
        """The sums, or averages, which start again from zero."""
        divisor = self._passes if self._average_passes else 1
        totals = [total.read_value() / tf.cast(divisor, total.dtype) for total, _ in _pairs(self._sums, gradients)]
        with tf.control_dependencies(totals):
            zeros = [total.assign(tf.zeros_like(total), read_value=False) for total, _ in _pairs(self._sums, gradients)]
            zeros.append(self._count.assign(0, read_value=False))
        with _after(zeros):
            taken = iter([tf.identity(each) for each in totals])
        return [None if each is None else next(taken) for each in gradients]

    def is_alone(self) -> bool:
        """Whether there is nobody to reduce with: one rank, or one outside the set."""
        given = self._process_set
        if given is None:
            return farandole.size() == 1
        if given.included() is None:
            raise ValueError(f"{given} is not known in this world; call add_process_set with it on every rank first")
        return not given.included() or given.size() == 1

    def _dense(self, gradient: Gradient) -> Gradient:
        return tf.convert_to_tensor(gradient) if self._sparse_as_dense else gradient

    def _own(self, gradient: Gradient) -> Gradient:
        """What stays on this rank; scaled, since the losses of the other ranks do not depend on it."""
        if not self._scale_local:
            return gradient
        ranks = farandole.size() if self._process_set is None else self._process_set.size()
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / ranks, gradient.indices, gradient.dense_shape)
        return gradient / ranks

    def _grouped(
        self, wanted: list[int], gradients: Sequence[Gradient], variables: Sequence[Variable]
    ) -> list[list[int]]:
        """Which gradients, by their places, go in one operation."""
        if isinstance(self._groups, int) and self._groups:
            return [[wanted[i] for i in group] for group in even_groups(len(wanted), self._groups)]
        if not self._groups:
            # Eagerly each operation is waited for, so there is one; in a graph each begins when its gradient is there.
            return [wanted] if tf.executing_eagerly() and wanted else [[place] for place in wanted]
        group_of = {key_of(each): number for number, group in enumerate(self._groups) for each in group}
        found: dict[int, list[int]] = {}
        for place in wanted:
            found.setdefault(group_of.get(key_of(variables[place]), -1 - place), []).append(place)
        return list(found.values())

    def _reduced(self, gradients: list[Gradient], places: list[int]) -> list[Gradient]:
        how: dict[str, Any] = {
            "op": self._op,
            "prescale_factor": self._factors[0],
            "postscale_factor": self._factors[1],
            "compression": self._compression,
            "process_set": self._process_set,
            "name": f"{self._name}.{places[0]}",
        }
        if len(gradients) == 1:
            return [allreduce(gradients[0], **how)]
        return grouped_allreduce(gradients, **how)


def _pairs(sums: list[Any], gradients: Sequence[Gradient]) -> list[tuple[Any, Gradient]]:
    """The sums of what has a gradient in this pass."""
    return [(total, each) for total, each in zip(sums, gradients, strict=True) if each is not None]


def _after(done: Iterable[Any]) -> Any:
    """A context of what runs later; eagerly it is done already."""
    return tf.control_dependencies([each for each in done if each is not None])


def key_of(variable: Variable) -> int:
    """The same for a variable of Keras 3 and TensorFlow's inside it."""
    return id(getattr(variable, "_value", variable) if not isinstance(variable, tf.Variable) else variable)


def chosen_groups(num_groups: int, groups: Groups) -> Groups:
    """The groups, of which `num_groups` is the older form."""
    if groups is None:
        return num_groups
    if isinstance(groups, int) or all(isinstance(each, list | tuple) for each in groups):
        return groups
    raise ValueError("groups must be a number, or lists of variables")


def variables_of(layers: Any) -> list[Variable]:
    """Those of one layer, or of several."""
    listed = layers if isinstance(layers, list | tuple) else [layers] if layers is not None else []
    for each in listed:
        if not hasattr(each, "trainable_weights"):
            raise ValueError(f"local_layers must be layers of Keras, not {type(each).__name__}")
    return [weight for layer in listed for weight in layer.trainable_weights]
