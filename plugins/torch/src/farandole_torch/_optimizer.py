"""An optimizer whose gradients are averaged over the ranks while backward is still running."""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from farandole import Adasum, Average, ProcessSet, ReduceOp
from farandole.plugin import Compressor, GradientReducer, even_groups, is_alone

from farandole_torch._adapter import Tensor
from farandole_torch._autograd import collectives
from farandole_torch._operations import Compression

Parameter = Any  # torch.nn.Parameter
Groups = int | Sequence[Sequence[Parameter]]


def DistributedOptimizer(  # the name that Horovod's users know
    optimizer: Any,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: Compressor[Tensor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet | None = None,
) -> Any:
    """Make `optimizer` reduce the gradients over all ranks before each `step()`, and return it.

    The optimizer stays the object it is, in a subclass of its class with the same name, so schedulers, state_dict and
    isinstance work. Each gradient is submitted as soon as backward has computed it; `step()` waits for all. Parameters
    without a gradient get a zero one, because another rank may have one. In a world of one nothing is added.

    The optimizer gains: `synchronize()`, to have the reduced gradients before `step()`, which then does not reduce
    again (for clipping, and before `GradScaler.unscale_` or `GradScaler.step`); `skip_synchronize()`, a context in
    which `step()` reduces nothing; `set_backward_passes_per_step(n)`; and `submitted_bytes`, how many bytes of
    gradients are on their way.

    Args:
        optimizer: a torch.optim.Optimizer, with or without state.
        named_parameters: (name, parameter) pairs, usually `model.named_parameters()`; names match the ranks' gradients.
            Without them, parameters are named by their position.
        compression: what travels: `Compression.none`, `fp16` or `bf16`.
        backward_passes_per_step: how many backward passes add to the gradients before they are reduced.
        op: Average or Sum; also Min, Max, Product.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        num_groups: the older form of an integer `groups`.
        groups: a number of groups, or lists of parameters: gradients of a group are reduced as one operation.
        sparse_as_dense: convert sparse gradients to dense ones; without it they are an error.
        process_set: the ranks whose gradients are reduced with each other, by default all. On the others nothing is
            added.

    Raises:
        ValueError: names that are not unique or lacking, an argument out of range, or an optimizer wrapped before.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"expected a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, _Distributed):
        raise ValueError("this optimizer is distributed already; wrap it once")
    if op == Adasum:
        raise ValueError("DistributedOptimizer cannot do op=Adasum yet: reduce with allreduce(..., op=Adasum) yourself")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    names = _names(parameters, named_parameters)
    reducer: GradientReducer[Tensor] = GradientReducer(
        collectives,
        names,
        groups=_indices(num_groups if groups is None else groups, parameters),
        passes=backward_passes_per_step,
        op=op,
        predivide_factor=gradient_predivide_factor,
        compression=compression,
        process_set=process_set,
    )
    plain = type(optimizer)
    body = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    optimizer.__class__ = type(plain.__name__, (_Distributed, plain), body)
    optimizer._farandole = _Reduction(optimizer, reducer, parameters, sparse_as_dense, is_alone(process_set))
    return optimizer


class _Distributed:
    """What a distributed optimizer has in addition; mixed into the user's class."""

    _farandole: _Reduction

    @property
    def submitted_bytes(self) -> int:
        """Bytes of gradients submitted since the last synchronization."""
        return self._farandole.reducer.submitted_bytes

    def synchronize(self) -> None:
        """Reduce all gradients and wait for them; `step()` will not do it again. Raises like allreduce."""
        self._farandole.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A context in which `step()` reduces nothing."""
        self._farandole.skips = True
        try:
            yield
        finally:
            self._farandole.skips = False

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change how many backward passes come before each `step()`."""
        self._farandole.reducer.passes = passes

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As in torch. Raises ValueError between backward and step(), when gradients are on their way."""
        if self._farandole.reducer.in_flight:
            raise ValueError(
                "zero_grad() came between backward() and step(), while gradients are being reduced: call it before "
                "backward(), or call synchronize() first"
            )
        self._farandole.synchronized = False
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: the ranks have agreed on the parameters. Raises ValueError."""
        raise ValueError("add parameter groups before DistributedOptimizer(...) is called, not after")


class _Reduction:
    """Between one optimizer's hooks and its GradientReducer."""

    def __init__(
        self,
        optimizer: Any,
        reducer: GradientReducer[Tensor],
        parameters: list[Parameter],
        sparse_as_dense: bool,
        is_alone: bool,
    ) -> None:
        self.reducer = reducer
        self.synchronized = False  # reduced since the last backward
        self.skips = False
        self._parameters = parameters
        self._sparse_as_dense = sparse_as_dense
        self._hooked: set[int] = set()
        self._is_alone = is_alone
        if is_alone:
            return
        self._watch()
        weak = weakref.ref(self)
        hook = optimizer.register_step_pre_hook(lambda _, args, kwargs: _before_step(weak, args, kwargs))
        # Ours comes first: hooks that the user registered before, say to clip, are to see the reduced gradients.
        optimizer._optimizer_step_pre_hooks.move_to_end(hook.id, last=False)

    def synchronize(self) -> None:
        if self._is_alone:
            return
        self._watch()
        wanted = [i for i, parameter in enumerate(self._parameters) if parameter.requires_grad]
        self.reducer.finish(wanted, self._gradient)
        self.synchronized = True

    def before_step(self) -> None:
        if not self.skips and not self.synchronized:
            self.synchronize()
        self.synchronized = False

    def accumulated(self, index: int) -> None:
        self.synchronized = False
        self.reducer.ready(index, self._gradient(index))

    def _watch(self) -> None:
        """Hook the parameters that have none; a frozen one gets its hook when it is no longer frozen."""
        weak = weakref.ref(self)  # a hook must not keep a discarded optimizer at work
        for index, parameter in enumerate(self._parameters):
            if parameter.requires_grad and index not in self._hooked:
                self._hooked.add(index)
                parameter.register_post_accumulate_grad_hook(_Hook(weak, index))

    def _gradient(self, index: int) -> Tensor:
        parameter = self._parameters[index]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        elif parameter.grad.layout is not torch.strided and self._sparse_as_dense:
            parameter.grad = parameter.grad.to_dense()
        return parameter.grad


class _Hook:
    """Called by backward each time it has added to the parameter's gradient."""

    def __init__(self, reduction: weakref.ref[_Reduction], index: int) -> None:
        self._reduction, self._index = reduction, index

    def __call__(self, parameter: Parameter) -> None:
        reduction = self._reduction()
        if reduction is not None:
            reduction.accumulated(self._index)


def _before_step(
    weak: weakref.ref[_Reduction], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Reduce before step(); with a closure, each time after it, for that is where the gradients come from."""
    reduction = weak()
    if reduction is None:
        return None
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if closure is None:
        reduction.before_step()
        return None

    def reduced_closure() -> Any:
        loss = closure()
        reduction.before_step()
        return loss

    if len(args) > 1:
        return (args[0], reduced_closure, *args[2:]), kwargs
    return args, {**kwargs, "closure": reduced_closure}


def _names(parameters: list[Parameter], named: Iterable[tuple[str, Parameter]] | None) -> list[str]:
    """One name per parameter of the optimizer, in its order."""
    if named is None:
        return [f"parameter.{i}" for i in range(len(parameters))]
    pairs = list(named)
    if any(not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
        raise ValueError("named_parameters must be (name, parameter) pairs, such as model.named_parameters()")
    all_names = [name for name, _ in pairs]
    repeated = sorted(name for name, count in Counter(all_names).items() if count > 1)
    if repeated:
        raise ValueError(f"named_parameters has names that are not unique: {', '.join(repeated)}")
    name_of = {id(parameter): name for name, parameter in pairs}
    lacking = [i for i, parameter in enumerate(parameters) if id(parameter) not in name_of]
    if lacking:
        shapes = ", ".join(f"number {i} of shape {tuple(parameters[i].shape)}" for i in lacking[:5])
        raise ValueError(
            f"{len(lacking)} of the optimizer's {len(parameters)} parameters have no name in named_parameters: {shapes}"
        )
    return [name_of[id(parameter)] for parameter in parameters]


def _indices(groups: Groups, parameters: list[Parameter]) -> list[list[int]]:
    """The groups as indices into the optimizer's parameters."""
    if isinstance(groups, int):
        return even_groups(len(parameters), groups)
    index_of = {id(parameter): i for i, parameter in enumerate(parameters)}
    try:
        return [[index_of[id(parameter)] for parameter in group] for group in groups]
    except (KeyError, TypeError):
        raise ValueError("groups must be a number, or lists of parameters of this optimizer") from None
