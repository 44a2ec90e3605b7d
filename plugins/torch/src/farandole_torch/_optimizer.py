"""An optimizer whose gradients are averaged over the ranks before each step."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from farandole import Adasum, Average, ProcessSet, ReduceOp
from farandole.plugin import Compressor, even_groups, extend, is_alone, predivide_factors, reduction

from farandole_torch._adapter import Compression, Tensor
from farandole_torch._deltas import Deltas
from farandole_torch._owners import Parameter, check_free
from farandole_torch._private import complete
from farandole_torch._reduction import Reduction
from farandole_torch._scaling import reduce_before_unscaling

Groups = int | Sequence[Sequence[Parameter]]
if TYPE_CHECKING:  # the user's class, which type checkers cannot add to, is one of these
    _Optimizer: TypeAlias = torch.optim.Optimizer
else:
    _Optimizer = object


def DistributedOptimizer(  # the name that Horovod's users know
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: Compressor[Tensor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet | None = None,
    *,
    overlap: bool | None = None,
) -> Distributed:
    """Make `optimizer` reduce the gradients over all ranks before each `step()`, and return it.

    The same object is returned; its class becomes a subclass with the same name, so schedulers, state_dict and
    isinstance work. `step()` waits for the reduced gradients. Parameters without a gradient get a gradient of zeros,
    because another rank may have one. With a single rank, the optimizer behaves as before.

    The optimizer gains `synchronize()`, which reduces the gradients before `step()`, for example to clip them;
    `skip_synchronize()`, a context in which `step()` reduces nothing; `set_backward_passes_per_step(n)`; and
    `submitted_bytes`, the number of bytes being reduced. A GradScaler always gets the reduced gradients, so all ranks
    skip the same steps.

    Args:
        optimizer: a torch.optim.Optimizer, with or without state.
        named_parameters: (name, parameter) pairs, usually `model.named_parameters()`; names match the ranks' gradients.
            Without them, parameters have the names that the optimizer knows, else are named by their position.
        compression: the type in which gradients are sent: `Compression.none`, `fp16` or `bf16`.
        backward_passes_per_step: the number of backward passes that accumulate gradients before they are reduced.
        op: Average or Sum; also Min, Max, Product. With Adasum (`ReduceOp` names its source) each rank steps with its
            own gradients, and the changes of the parameters are combined afterwards. Then `groups` and
            `backward_passes_per_step` are ignored, `synchronize()` does nothing, and `skip_synchronize()` and
            GradScaler are errors.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        num_groups: as an integer in `groups`; Horovod's older argument.
        groups: a number of groups, or lists of parameters: gradients of a group are reduced as one operation.
        sparse_as_dense: reduce sparse gradients as dense ones (SparseAdam still gets sparse ones). By default the rows
            of all ranks are gathered (Average and Sum), and every rank needs a gradient in the first step.
        process_set: the ranks that reduce their gradients together, by default all; others step as before.
        overlap: submit each gradient as soon as backward has computed it, instead of all at the end. By default True
            with GPUs, several hosts, or more cores than threads. Ranks may differ. Not for Adasum.

    Raises:
        ValueError: a name is missing or not unique, an argument is out of range, the optimizer is already distributed,
            or another one is reducing gradients of these parameters.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
        >>> (weight * hvd.rank()).sum().backward()
        >>> optimizer.step()  # with the average of 0 and 1
        >>> weight.tolist()
        [-0.5, -0.5]
    """
    parameters = _parameters_of(optimizer)
    op = reduction(None, op)
    names = _Names(optimizer.param_groups, parameters, named_parameters)
    check_free(parameters, names.chosen)
    watching: Reduction | Deltas
    if op == Adasum:
        predivide_factors(op, gradient_predivide_factor)
        watching = Deltas(parameters, names.chosen, compression, process_set)
    else:
        watching = Reduction(
            parameters,
            names.chosen,
            groups=_indices(num_groups if groups is None else groups, parameters),
            passes=backward_passes_per_step,
            op=op,
            predivide_factor=gradient_predivide_factor,
            compression=compression,
            process_set=process_set,
            sparse_as_dense=sparse_as_dense,
            overlap=overlap,
        )
    _make_distributed(optimizer, watching, names)
    watching.start(optimizer, is_alone(process_set))
    return cast(Distributed, optimizer)


@contextlib.contextmanager
def no_sync(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Accumulate gradients over several batches: inside the context, `backward()` sends nothing.

    The first `backward()` after the context reduces the accumulated gradients, also those of parameters that it does
    not reach. With n batches, run n - 1 inside and divide each loss by n: the step is then that of one large batch.
    Call `zero_grad()` before the first batch.

    Args:
        optimizer: a distributed optimizer, of any `op`.

    Raises:
        ValueError: the optimizer is not distributed; gradients are being reduced, because `step()` did not follow
            `backward()`; or `step()`, `synchronize()` or a GradScaler's `unscale_()` is called inside.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
        >>> with hvd.no_sync(optimizer):
        ...     (weight * hvd.rank()).sum().backward()
        >>> (weight * 2).sum().backward()
        >>> optimizer.step()  # with the average of 0 + 2 and 1 + 2
        >>> weight.tolist()
        [-2.5, -2.5]
    """
    if not isinstance(optimizer, Distributed):
        raise ValueError(
            f"no_sync() takes an optimizer that DistributedOptimizer has returned, not {type(optimizer).__name__}"
        )
    watching = optimizer._farandole
    if watching.in_flight:
        raise ValueError(
            "no_sync() came between backward() and step(), while gradients are being reduced: call it before the first "
            "backward(), or call synchronize() first"
        )
    before, watching.pauses = watching.pauses, True
    try:
        yield
    finally:
        watching.pauses = before


class Distributed(_Optimizer):  # type: ignore[misc, unused-ignore]  # torch is not read
    """The methods that a distributed optimizer adds to the user's class."""

    _farandole: Reduction | Deltas
    _farandole_names: _Names

    @property
    def submitted_bytes(self) -> int:
        """Bytes of gradients submitted since the last synchronization."""
        return self._farandole.submitted_bytes

    def synchronize(self) -> None:
        """Reduce all gradients and wait for them; `step()` then does not reduce again. Raises like allreduce."""
        self._farandole.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A context in which `step()` does not reduce; call `synchronize()` before it."""
        self._farandole.skips = True
        try:
            yield
        finally:
            self._farandole.skips = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes before each `step()`."""
        self._farandole.passes = passes

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As in torch. Raises ValueError between `backward()` and `step()`, while gradients are being reduced."""
        self._farandole.before_zeroing()
        super().zero_grad(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refused: a copy would have no hooks, and its steps would reduce nothing."""
        raise TypeError(
            "a distributed optimizer cannot be copied or pickled: keep its state_dict(); for a copied model make an "
            "optimizer, load_state_dict() and give that to DistributedOptimizer"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in torch. Call it on every rank.

        The new parameters are reduced one by one. Their names are those of `named_parameters`, else those of the group,
        else their position.

        Raises:
            ValueError: as in torch, or gradients are being reduced. The optimizer is then unchanged.
        """
        self._farandole.before_extending()
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        names = self._farandole_names.choose(group)
        try:
            self._farandole.extend(group["params"], names)
        except ValueError:
            self.param_groups.pop()
            raise
        self._farandole_names.chosen += names


def _parameters_of(optimizer: Any) -> list[Parameter]:
    """All parameters of a plain optimizer. Raises ValueError for anything else."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"expected a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, Distributed):
        raise ValueError("this optimizer is distributed already; wrap it once")
    return [p for group in optimizer.param_groups for p in group["params"]]


def _make_distributed(optimizer: Any, watching: Reduction | Deltas, names: _Names) -> None:
    extend(optimizer, Distributed)
    optimizer._farandole, optimizer._farandole_names = watching, names
    complete(optimizer)
    reduce_before_unscaling()


class _Names:
    """The name of each parameter of the optimizer, in its order."""

    def __init__(
        self,
        groups: list[dict[str, Any]],
        parameters: list[Parameter],
        named: Iterable[tuple[str, Parameter]] | None,
    ) -> None:
        self._given = {} if named is None else _checked(list(named))
        self.chosen: list[str] = []
        lacking = [i for i, parameter in enumerate(parameters) if id(parameter) not in self._given]
        if lacking and named is not None:
            shapes = ", ".join(f"number {i} of shape {tuple(parameters[i].shape)}" for i in lacking[:5])
            raise ValueError(
                f"{len(lacking)} of the optimizer's {len(parameters)} parameters have no name in named_parameters: "
                f"{shapes}"
            )
        for group in groups:
            self.chosen += self.choose(group)

    def choose(self, group: dict[str, Any]) -> list[str]:
        """New names for one more group: those given at first, else the group's own, else the position."""
        names: list[str] = []
        taken, others = set(self.chosen), group.get("param_names")
        for i, parameter in enumerate(group["params"]):
            name, _ = self._given.get(id(parameter), (others[i] if others else None, None))
            names.append(_by_position(taken) if name is None or name in taken else name)
            taken.add(names[-1])
        return names


def _by_position(taken: set[str]) -> str:
    """The next number whose name is not taken."""
    return next(name for name in map("parameter.{}".format, itertools.count(len(taken))) if name not in taken)


def _checked(pairs: list[tuple[str, Parameter]]) -> dict[int, tuple[str, Parameter]]:
    """The pairs by the parameter's id, which is unique as long as the parameter is referenced here."""
    if any(not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise ValueError("named_parameters must be (name, parameter) pairs, such as model.named_parameters()")
    repeated = sorted(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    if repeated:
        raise ValueError(f"named_parameters has names that are not unique: {', '.join(repeated)}")
    return {id(parameter): (name, parameter) for name, parameter in pairs}


def _indices(groups: Groups, parameters: list[Parameter]) -> list[list[int]]:
    """The groups as indices into the optimizer's parameters."""
    if isinstance(groups, int):
        return even_groups(len(parameters), groups)
    index_of = {id(parameter): i for i, parameter in enumerate(parameters)}
    try:
        return [[index_of[id(parameter)] for parameter in group] for group in groups]
    except (KeyError, TypeError):
        raise ValueError("groups must be a number, or lists of parameters of this optimizer") from None
