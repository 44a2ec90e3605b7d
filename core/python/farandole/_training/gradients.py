"""When each gradient is submitted: counting backward passes, groups, compression. Knows no hooks and no optimizer.

An optimizer wrapper tells `ready` each time a gradient is computed, and calls `finish` before it uses the gradients:

    counting --ready, passes times--> due --all members of its group due--> submitted --finish--> counting

A gradient that nobody reported is submitted by `finish`, so that all ranks reduce the same set whatever their branches.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from farandole._api.collectives import Collectives
from farandole._api.handles import Handle
from farandole._api.ops import ReduceOp, predivide_factors
from farandole._api.process_sets import ProcessSet
from farandole._training.compression import Compressor, check_compressor

T = TypeVar("T")


def even_groups(count: int, groups: int) -> list[list[int]]:
    """The indices 0 .. count-1 in at most `groups` consecutive runs of nearly equal length. Pure.

    Raises ValueError for a negative number of groups; 0 groups means none.
    """
    if groups < 0:
        raise ValueError(f"groups={groups} must not be negative")
    groups = min(groups, count)
    bounds = [count * i // groups for i in range(groups + 1)] if groups else []
    return [list(range(*bound)) for bound in itertools.pairwise(bounds)]


class GradientReducer(Generic[T]):
    """Reduces one gradient per name, in place, as early as possible.

    Thread safety: `ready` may be called from several threads at once (autograd has one per device), all else by one at
    a time. From `ready` to the submission in the core each gradient passes few functions, since models have many.
    """

    is_sparse: Callable[[T], bool] | None = None
    """A subclass for a framework with sparse gradients sets this, and overrides `start_sparse`."""

    def start_sparse(self, index: int, gradient: T, name: str) -> tuple[Handle[T], int]:
        """Start the reduction `name` of a gradient that is sparse. Returns its handle and the bytes that are sent.

        The handle's result must be the gradient that was given; what becomes of the reduction, the subclass decides.
        """
        raise NotImplementedError

    def __init__(
        self,
        collectives: Collectives[T],
        names: Sequence[str],
        *,
        groups: Sequence[Sequence[int]] = (),
        passes: int = 1,
        op: ReduceOp = ReduceOp.AVERAGE,
        predivide_factor: float = 1.0,
        compression: Compressor[T] | None = None,
        process_set: ProcessSet | None = None,
    ) -> None:
        """Start with no gradient reported.

        Args:
            collectives: the operations of the framework.
            names: one unique name per gradient; gradients are known by their index in it.
            groups: disjoint lists of indices that are reduced in one operation each; what is in none goes alone.
            passes: how often a gradient is reported ready before it is reduced.
            op: Average or Sum, usually.
            predivide_factor: divides before the sum, and is undone after; only with Average.
            compression: what travels instead of the gradients.
            process_set: the ranks whose gradients are reduced with each other, this one among them; by default all.

        Raises:
            ValueError: names that are not unique, an index in two groups, or an argument out of range.
        """
        self._collectives, self._names = collectives, list(names)
        self._how = op, *predivide_factors(op, predivide_factor), process_set
        self._compression = compression or collectives.Compression.none
        check_compressor(self._compression)
        self._compresses = self._compression is not collectives.Compression.none
        self._groups = _with_singles(groups, len(self._names))
        self._group_of = {index: group for group, indices in enumerate(self._groups) for index in indices}
        _check_unique(self._names)
        self._own_operations = list(map(_own_operation, self._names))  # made once: each step needs all of them
        self.passes = passes
        self._lock = threading.Lock()
        self._forget()

    @property
    def passes(self) -> int:
        """How often a gradient is reported ready before it is reduced; at least 1."""
        return self._passes

    @passes.setter
    def passes(self, passes: int) -> None:
        if passes < 1:
            raise ValueError(f"backward_passes_per_step={passes} must be at least 1")
        self._passes = passes

    @property
    def submitted_bytes(self) -> int:
        """The number of bytes being reduced since the last `finish`."""
        sent = [tensor for _, _, tensor, _ in self._alone if tensor is not None]
        for _, _, tensors, _ in self._together:
            sent += tensors
        return self._sparse_bytes + sum(map(self._bytes, sent))

    @property
    def groups(self) -> list[list[int]]:
        """The indices that are reduced in one operation each, those of gradients alone included."""
        return self._groups

    @property
    def holds(self) -> bool:
        """Return whether `hold` was called since the last `finish`."""
        return self._holds

    @property
    def begun_passes(self) -> int:
        """The number of backward passes that have added to the gradients of an incomplete step."""
        return max(self._seen, default=0)

    @property
    def in_flight(self) -> bool:
        """Return whether a gradient was handed over since the last `finish`."""
        return bool(self._alone or self._together or self._waiting)

    def hold(self) -> None:
        """Submit nothing before `finish`: for when it is not sure yet that the ranks reduce the same set."""
        self._holds = True

    def forget(self) -> None:
        """Begin again, without what is on its way: for a world that is no more, in which nothing touches it."""
        with self._lock:
            self._forget()

    def withdraw(self, indices: Iterable[int]) -> None:
        """Do not submit these, of those that are held."""
        for index in indices:
            self._waiting.pop(index, None)

    def operation_of(self, index: int) -> tuple[str, Sequence[int]]:
        """The name of the operation that reduces this gradient, and all that it reduces."""
        group = self._group_of[index]
        members = self._groups[group]
        # Named by a parameter, not by its number, so that optimizers in two threads can be told apart.
        return (f"gradients.{self._names[members[0]]}" if len(members) > 1 else self._own_operations[index]), members

    def ready(self, index: int, gradient: T) -> bool:
        """One backward pass has added to the gradient. Submits it, or its group, at the last one; never blocks.

        Returns:
            Whether it was the last one: the gradient must not be touched from then on until `finish`.

        Raises:
            ValueError: the gradient was already submitted: more backward passes than announced.
        """
        with self._lock:
            if index in self._submitted or (self._holds and index in self._waiting):
                raise self._too_many_passes(index)
            self._seen[index] += 1
            if self._seen[index] < self._passes:
                return False
            self._due(index, gradient)
            return True

    def _too_many_passes(self, index: int) -> ValueError:
        text = (
            f"the gradient of {self._names[index]!r} was computed again before the optimizer's step(): "
            f"backward_passes_per_step is {self._passes}; raise it, or call step() or synchronize() in between"
        )
        if self._passes > 1:
            text += (
                ". If the number of batches of an epoch is not a multiple of "
                f"{self._passes}, call step() after the last batch, or leave the last batches out (drop_last=True)"
            )
        return ValueError(text)

    def add(self, names: Sequence[str]) -> None:
        """Add gradients, each reduced alone; their indices follow the existing ones.

        Raises:
            ValueError: a name that there is, or gradients are on their way.
        """
        if self.in_flight:
            raise ValueError("gradients are being reduced: call step() or synchronize() before adding parameters")
        _check_unique([*self._names, *names])
        for name in names:
            self._group_of[len(self._names)] = len(self._groups)
            self._groups.append([len(self._names)])
            self._names.append(name)
            self._own_operations.append(_own_operation(name))
        self._forget()

    def finish(self, indices: Sequence[int], gradient_of: Callable[[int], T]) -> None:
        """Submit those of `indices` that are not submitted yet, and wait for all; every gradient is then reduced.

        Args:
            indices: the gradients to reduce; the same on all ranks.
            gradient_of: gives the gradient of an index that `ready` has not handed over.

        Raises:
            FarandoleError: an operation's error, after all are complete: the first one, of those of single gradients
                before those of groups. The reducer can be used again.
            KeyboardInterrupt: `finish` can be called again, and waits for what is still on its way.
        """
        self._holds = False
        refusal = self._submit_rest(indices, gradient_of)
        failure = self._wait()  # in any case: the names of what is on its way are taken until then
        self._forget()
        if refusal:
            raise refusal from failure
        if failure:
            raise failure

    def _submit_rest(self, indices: Sequence[int], gradient_of: Callable[[int], T]) -> Exception | None:
        """Return the first error; the other ranks need what can be submitted all the same."""
        refusal: Exception | None = None
        for index in indices:
            try:
                if index not in self._submitted and index not in self._waiting:
                    self._due(index, gradient_of(index))
            except Exception as error:
                refusal = refusal or error
        for group in sorted({self._group_of[index] for index in self._waiting}):  # not all members are among `indices`
            members = self._groups[group]
            try:
                if len(members) == 1:
                    self._submit_alone(members[0], self._waiting.pop(members[0]))
                else:
                    self._submit_together([i for i in members if i in self._waiting])
            except Exception as error:
                refusal = refusal or error
        return refusal

    def _due(self, index: int, gradient: T) -> None:
        members = self._groups[self._group_of[index]]
        if self._holds:
            self._waiting[index] = gradient
        elif len(members) == 1:
            self._submit_alone(index, gradient)
        else:
            self._waiting[index] = gradient
            if all(member in self._waiting for member in members):
                self._submit_together(members)

    def _submit_alone(self, index: int, gradient: T) -> None:
        """Start the reduction of a gradient that is in no group."""
        name = self._own_operations[index]
        if self.is_sparse is not None and self.is_sparse(gradient):
            handle, size_bytes = self.start_sparse(index, gradient, name)
            self._alone.append((handle, gradient, None, None))
            self._sparse_bytes += size_bytes
        else:
            sent, context = self._compression.compress(gradient) if self._compresses else (gradient, None)
            handle = self._collectives.allreduce_async_(sent, None, name, *self._how)
            self._alone.append((handle, gradient, sent, context))
        self._submitted.add(index)

    def _submit_together(self, members: Sequence[int]) -> None:
        """Start the reduction of these members of a group, which wait for it; sparse ones go alone."""
        if self.is_sparse is not None:
            for index in [i for i in members if self.is_sparse(self._waiting[i])]:
                self._submit_alone(index, self._waiting.pop(index))
        gradients = {index: self._waiting.pop(index) for index in members if index in self._waiting}
        if gradients:
            sent, contexts = zip(*map(self._compression.compress, gradients.values()), strict=True)
            name, _ = self.operation_of(members[0])
            handle = self._collectives.grouped_allreduce_async_(sent, None, name, *self._how)
            self._together.append((handle, list(gradients.values()), sent, contexts))
            self._submitted.update(gradients)

    def _wait(self) -> Exception | None:
        """Wait for all; returns the first error."""
        first_error: Exception | None = None
        for handle, gradient, _, context in self._alone:
            try:
                reduced = handle.wait()
                if reduced is not gradient:
                    self._write_back(gradient, reduced, context)
            except Exception as error:
                first_error = first_error or error
        for handles, gradients, _, contexts in self._together:
            try:
                for gradient, reduced, context in zip(gradients, handles.wait(), contexts, strict=True):
                    if reduced is not gradient:
                        self._write_back(gradient, reduced, context)
            except Exception as error:
                first_error = first_error or error
        return first_error

    def _write_back(self, gradient: T, reduced: T, context: object) -> None:
        self._collectives.adapter.assign(gradient, self._compression.decompress(reduced, context))

    def _bytes(self, tensor: T) -> int:
        dtype, shape = self._collectives.adapter.describe(tensor)
        count = dtype.itemsize
        for extent in shape:
            count *= extent
        return count

    def _forget(self) -> None:
        self._seen = [0] * len(self._names)
        self._holds = False
        self._waiting: dict[int, T] = {}  # due, but its group is not complete, or held
        self._submitted: set[int] = set()
        self._sparse_bytes = 0  # of what is in `_alone` without a tensor that was sent
        # On their way: the handle, the gradient, what is sent, and what `decompress` needs; or lists of these.
        self._alone: list[tuple[Handle[T], T, T | None, object]] = []
        self._together: list[tuple[Handle[list[T]], list[T], Sequence[T], Sequence[object]]] = []


def _own_operation(name: str) -> str:
    """The name of the operation of a gradient that is reduced alone."""
    return f"gradient.{name}"


def _with_singles(groups: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """The groups, and one more for each index that is in none."""
    grouped: set[int] = set()
    for index in (index for group in groups for index in group):
        if index in grouped:
            raise ValueError(f"gradient {index} is in more than one group")
        grouped.add(index)
    singles = [[index] for index in range(count) if index not in grouped]
    return [list(group) for group in groups if group] + singles


def _check_unique(names: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"parameter names must be unique; these are not: {', '.join(repeated)}")
