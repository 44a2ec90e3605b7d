"""The functions that make an optimizer distributed, or a saved model's, as users call them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any, Generic, Protocol, TypeVar, cast

from farandole._api.errors import ArgumentError
from farandole._api.ops import Average, ReduceOp
from farandole._api.process_sets import ProcessSet
from farandole._keras.arguments import Groups, check_op, chosen_groups, with_local_layers
from farandole._keras.exchange import ExchangeOptions, Framework, Named
from farandole._keras.optimizer import distribute, is_distributed
from farandole._training.compression import Compressor

Optimizer = TypeVar("Optimizer")
Tensor = TypeVar("Tensor")
Model = TypeVar("Model")

_NOT_OF_LOADING = {"optimizer", "name", "device_dense", "device_sparse", "compression"}  # of its arguments
_EXAMPLE_OF_PARTIAL = """
    >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    >>> plain, layers = keras.optimizers.SGD(0.5), model.layers
    >>> optimizer = hvd.PartialDistributedOptimizer(plain, local_layers=layers, scale_local_gradients=False)
    >>> model.compile(optimizer, loss="mse", jit_compile=False)
    >>> _ = model.fit(np.ones((1, 1)), np.full((1, 1), 1.0 * hvd.rank()), verbose=0)
    >>> float(model.get_weights()[0][0, 0]) == hvd.rank()  # DistributedOptimizer would make both 0.5
    True
"""


class Partial(Protocol):
    """`PartialDistributedOptimizer`, whose arguments `with_local_layers` makes."""

    def __call__(self, optimizer: Optimizer, *args: Any, **options: Any) -> Optimizer:
        """Make the optimizer distributed, and return it."""


class Training(Named, Generic[Tensor, Model]):
    """The functions for one Keras and one framework."""

    def __init__(self, framework: Framework[Tensor, Model], module: str) -> None:
        """Make them for this module."""
        super().__init__(module, "_training")
        self._framework = framework
        partial: Any = with_local_layers(
            self.DistributedOptimizer, "register_local_var", drop="num_groups", example=_EXAMPLE_OF_PARTIAL
        )
        partial.__module__, partial.__name__ = module, "PartialDistributedOptimizer"
        partial.__qualname__ = partial.__name__
        self.PartialDistributedOptimizer: Partial = partial

    def DistributedOptimizer(  # the name that Horovod's users know
        self,
        optimizer: Optimizer,
        name: str | None = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Compressor[Tensor] | None = None,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: ReduceOp = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Groups | None = None,
        process_set: ProcessSet | None = None,
        scale_local_gradients: bool = True,
    ) -> Optimizer:
        """Make an optimizer of Keras reduce the gradients over all ranks before each update, and return it.

        The optimizer stays the object it is, in a subclass of its class with the same name: iterations, slots, learning
        rates and what is saved are as without Farandole. The gradients are reduced where Keras applies them: in `fit`,
        `minimize`, `apply` and `apply_gradients`, before clipping. A LossScaleOptimizer may be around this optimizer or
        in it. In a world of one nothing is added.

        Args:
            optimizer: a keras.optimizers.Optimizer.
            name: distinguishes this optimizer's gradients in messages, and in timelines.
            device_dense: not needed; accepted because Horovod does.
            device_sparse: the same.
            compression: what travels: `Compression.none` (default), `fp16` or `bf16`.
            sparse_as_dense: convert sparse gradients to dense ones. Without it TensorFlow's are gathered, the rows of
                all ranks; PyTorch's, which Keras itself does not make, are a ValueError.
            gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
            op: Average or Sum.
            backward_passes_per_step: how many passes add to the gradients before they are reduced and applied. The
                optimizer counts each pass as an iteration.
            average_aggregated_gradients: divide the sum of the passes by how many they are.
            num_groups: the older form of an integer `groups`.
            groups: a number of groups, or lists of variables: gradients of a group are reduced as one operation.
            process_set: the ranks whose gradients are reduced with each other, by default all. On the others nothing is
                added.
            scale_local_gradients: divide the gradients of local variables, see `register_local_var`, by the number of
                ranks.

        Raises:
            ValueError: no optimizer of Keras, one that is distributed already, an `op` other than Average and Sum, or
                an argument out of range.

        Example:
            >>> model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
            >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
            >>> model.compile(optimizer, loss="mse", jit_compile=False)
            >>> _ = model.fit(np.ones((1, 1)), np.full((1, 1), 1.0 * hvd.rank()), verbose=0)
            >>> model.get_weights()[0].tolist()  # alone, rank 0 would get 0.0 and rank 1 would get 1.0
            [[0.5]]
        """
        options = ExchangeOptions(
            compression=compression or self._framework.compression.none,
            sparse_as_dense=sparse_as_dense,
            passes=backward_passes_per_step,
            op=check_op(op),
            predivide_factor=gradient_predivide_factor,
            average_passes=average_aggregated_gradients,
            groups=chosen_groups(num_groups, groups),
            process_set=process_set,
            scale_local=scale_local_gradients,
            name=name,
        )
        return cast(Optimizer, distribute(self._framework.keras, optimizer, self._framework.exchange(options)))

    def no_sync(self, optimizer: object) -> AbstractContextManager[None]:
        """Refused for optimizers of Keras, which reduce when they apply gradients, perhaps in a compiled step.

        `DistributedOptimizer(optimizer, backward_passes_per_step=n)` adds the gradients of n batches up and sends once;
        with `average_aggregated_gradients=True` the step is that of one batch of all.

        Raises:
            ArgumentError: always.

        Example:
            >>> hvd.no_sync(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))  # doctest: +ELLIPSIS
            Traceback (most recent call last):
                ...
            farandole.ArgumentError: Keras does not support no_sync(), ...
        """
        raise ArgumentError(
            "Keras does not support no_sync(), because a compiled training step would ignore it: use "
            "DistributedOptimizer(optimizer, backward_passes_per_step=n), which adds up the gradients of n passes"
        )

    def load_model(
        self,
        filepath: Any,
        custom_optimizers: Iterable[type] | None = None,
        custom_objects: dict[str, Any] | None = None,
        compression: Compressor[Tensor] | None = None,
        legacy_opts: bool = False,
        **options: Any,
    ) -> Model:
        """`keras.models.load_model`, with an optimizer that is distributed and has the state that was saved.

        The file is one that `keras.models.load_model` can read, too, which leaves the optimizer as it is without
        Farandole.

        Args:
            filepath: as there.
            custom_optimizers: classes of optimizers that the file names, other than Keras's own.
            custom_objects: everything else of that kind, by name.
            compression: of the optimizer, as all of the following.
            legacy_opts: not needed, the file says of which kind its optimizer is; accepted because Horovod does.
            options: of `keras.models.load_model` and `DistributedOptimizer`, each by its name.

        Example:
            >>> import tempfile
            >>> model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
            >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     model.save(f"{folder}/model.keras")
            ...     loaded = hvd.load_model(f"{folder}/model.keras")
            >>> hasattr(loaded.optimizer, "register_local_var")  # as distributed optimizers have
            True
        """
        known = signature(self.DistributedOptimizer).parameters.keys() - _NOT_OF_LOADING
        ours = {key: options.pop(key) for key in known & options.keys()}
        objects = {each.__name__: each for each in custom_optimizers or ()}
        model = self._framework.keras.models.load_model(
            filepath, custom_objects={**objects, **(custom_objects or {})}, **options
        )
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and not is_distributed(optimizer):
            self.DistributedOptimizer(optimizer, compression=compression, **ours)
        return cast(Model, model)
