"""A plugin supplies these: its framework's tensors and values, and how one optimizer's gradients are reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from farandole._api.ops import Average, ReduceOp
from farandole._api.process_sets import ProcessSet
from farandole._elastic.handlers import Arrays
from farandole._keras.arguments import Groups
from farandole._training.compression import Compression, Compressor

Gradient = Any
Variable = Any
Tensor = TypeVar("Tensor")
Model_co = TypeVar("Model_co", covariant=True)


@dataclass(frozen=True, kw_only=True)
class ExchangeOptions:
    """How gradients are reduced; what each field means, `DistributedOptimizer` says in its arguments.

    Raises:
        ValueError: there is no pass before an update.
    """

    compression: Compressor[Any]
    sparse_as_dense: bool = False
    passes: int = 1
    op: ReduceOp = Average
    predivide_factor: float = 1.0
    average_passes: bool = False
    groups: Groups = 0
    process_set: ProcessSet | None = None
    scale_local: bool = True
    name: str | None = None

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(f"backward_passes_per_step={self.passes} must be at least 1")

    @property
    def operations(self) -> str:
        """The name of the operations, before the place of a gradient."""
        return f"{self.name}.gradient" if self.name else "gradient"


class Exchange(Protocol):
    """How one optimizer's gradients are reduced, supplied by the plugin; nothing in it depends on Keras."""

    @property
    def options(self) -> ExchangeOptions:
        """With which it was made."""

    def step(
        self,
        gradients: Sequence[Gradient | None],
        variables: Sequence[Variable],
        build: Callable[[], None],
        apply: Callable[[list[Gradient | None]], Any],
        skip: Callable[[], Any],
    ) -> Any:
        """One backward pass: call `apply` with the reduced gradients if it is the last one before an update.

        Args:
            gradients: one for each variable, or None.
            variables: those of the optimizer, in the same order on all ranks.
            build: creates the optimizer's state if it is not there; needed before `apply` and `skip` become branches.
            apply: updates the variables.
            skip: is called instead of it for the passes before the last.

        Returns:
            What `apply` returns, where it is always called.
        """

    def register_local_var(self, variable: Variable) -> None:
        """Leave the gradient of this variable to each rank from now on."""

    def forget(self) -> None:
        """The world in which passes were added up is no more: begin again without them."""


class Framework(Arrays, Protocol[Tensor, Model_co]):
    """The framework that Keras runs on, and its variables as `Arrays`."""

    @property
    def keras(self) -> Any:
        """The module of Keras."""

    @property
    def model(self) -> type[Model_co]:
        """The class of Keras's models."""

    @property
    def compression(self) -> Compression[Tensor]:
        """The compressions in which its gradients can travel."""

    @property
    def operations(self) -> Any:
        """Has the plugin's functions allreduce, allgather, broadcast and reducescatter."""

    def exchange(self, options: ExchangeOptions) -> Exchange:
        """The exchange of one optimizer."""

    def tensor(self, value: Any) -> Tensor:
        """Return the tensor that the operations take for a number, an array or a tensor."""

    def result(self, given: Any, tensor: Tensor) -> Any:
        """What the operations return for `given`: a tensor where that is one, else an array or a number."""

    def step_scalars(self, writer: Any, *, every: int) -> Any:
        """`StepScalars`, with the writers that the framework's users have."""

    def compiler(self) -> str:
        """Names the compiler of a model's training step that cannot contain our operations; "" if there is none."""


class Named:
    """An object whose methods are functions of a plugin's module; pickled by its name there, as functions are."""

    def __init__(self, module: str, name: str) -> None:
        """It is the global variable `name` of `module`."""
        self.__module__, self._name = module, name

    def __reduce__(self) -> str:
        return self._name
