"""Copies, restores and sends single attributes of a state.

    commit    copy of every attribute, into the copies of the last commit but one; then keep of every attribute
    restore   the value becomes what was kept
    sync      holders: outline, arrays                    what pickle can send, and the arrays that travel by themselves
              takers:  receive(outline) -> arrays         into which they travel, then received()

A copy that fails half way leaves what was kept before. A plugin supplies the arrays of its framework.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from farandole._api.errors import ArgumentError
from farandole._elastic.batches import Batches
from farandole._elastic.loaders import ElasticLoader
from farandole._elastic.sampler import ElasticSampler

Array = Any


class Arrays(Protocol):
    """Arrays of a framework: tensors or variables."""

    def copy(self, array: Array, spare: Any) -> Any:
        """A copy of the array, in the memory of `spare`, an earlier copy or None, where it fits there."""

    def write(self, array: Array, copied: Any) -> bool:
        """Write the copy into the array; False, and nothing is written, where it does not fit."""

    def broadcast(self, arrays: Sequence[Array], root_rank: int) -> None:
        """Copy the given rank's arrays into everybody's. Collective."""

    def size_bytes(self, array: Array) -> int:
        """The size of all its elements together."""

    def memory(self, array: Array) -> memoryview | None:
        """The array's own memory, flat, which may be read and written; None where the host has no such of it."""

    def read(self, array: Array) -> memoryview:
        """A copy of the elements' bytes, flat, or what does not change; for arrays without `memory`."""

    def fill(self, array: Array, content: memoryview) -> None:
        """Write what another rank has read. The array may keep the memory."""


class NestedArrays(Arrays, Protocol):
    """Arrays that are found in dictionaries and lists, such as a `state_dict()`."""

    def is_array(self, value: object) -> bool:
        """Returns whether it is one of this framework's that `copy` takes."""

    def outline(self, array: Array) -> object | None:
        """A picklable object of which `receiver` makes an array; None where the array itself is to be pickled."""

    def receiver(self, outline: Any, live: Array | None) -> Array:
        """An array for what the outline says: the live one where it fits, else a new one."""


class StateHandler(ABC):
    """The attribute `value` of a state."""

    value: Any
    _kept: Any = None
    _copy: Any = None

    @abstractmethod
    def copy(self) -> None:
        """Copy the value as it is now."""

    def keep(self) -> None:
        """The copy is what `restore` takes from now on."""
        self._kept, self._copy = self._copy, self._kept

    @abstractmethod
    def restore(self) -> None:
        """The value becomes what was kept."""

    def structure(self) -> Sequence[str]:
        """Lines that must be alike on all ranks for one to take another's value."""
        return ()

    @abstractmethod
    def outline(self) -> tuple[object, Sequence[Array]]:
        """The object that a holder sends, and its arrays, which follow."""

    @abstractmethod
    def receive(self, outline: Any) -> Sequence[Array]:
        """The arrays for what follows a holder's outline."""

    def received(self) -> None:
        """They have been filled."""
        return

    def reset(self) -> None:
        """Forget what the value knows of a step or of ranks that are no more."""
        return


Reader = Callable[[], list[Array]]


class VariablesHandler(StateHandler):
    """A `StateHandler` of a value that has variables, which it keeps, in the same order on all ranks."""

    def __init__(self, value: Any, variables: Reader, arrays: Arrays, reset: Callable[[], None] | None = None) -> None:
        self.value, self._variables, self._arrays, self._reset = value, variables, arrays, reset
        self._kept, self._copy = [], []

    def copy(self) -> None:
        live = self._variables()
        spare = [*self._copy, *[None] * len(live)]
        self._copy = [self._arrays.copy(each, spare[i]) for i, each in enumerate(live)]

    def restore(self) -> None:
        live = self._variables()
        fits = len(live) == len(self._kept)
        if not fits or not all(self._arrays.write(*pair) for pair in zip(live, self._kept, strict=True)):
            raise ArgumentError(
                f"the variables of {type(self.value).__name__} are not those that the last commit copied "
                f"({len(live)} now, {len(self._kept)} then, or of another shape), so it cannot be restored: create "
                "all variables before the state, and add none while it trains"
            )

    def structure(self) -> Sequence[str]:
        return [f"variable {i} of {_described(each)}" for i, each in enumerate(self._variables())]

    def outline(self) -> tuple[object, Sequence[Array]]:
        return None, self._variables()

    def receive(self, outline: Any) -> Sequence[Array]:
        return self._variables()

    def reset(self) -> None:
        if self._reset is not None:
            self._reset()


def _described(array: Any) -> str:
    dtype = array.dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return f"{name} {tuple(array.shape)}"


@dataclass(frozen=True)
class _Placeholder:
    """Stands for an array in an outline; the array follows."""

    index: int
    outline: Any


class StateDictHandler(StateHandler):
    """A `StateHandler` of a value with `state_dict` and `load_state_dict`, or of one that has them in `through`."""

    def __init__(self, value: Any, arrays: NestedArrays | None = None, through: Any = None) -> None:
        self.value, self._arrays = value, arrays
        self._through = value if through is None else through
        self._incoming: Any = None

    def copy(self) -> None:
        self._copy = self._copied(self._through.state_dict(), self._copy)

    def restore(self) -> None:
        self._through.load_state_dict(self._restored(self._kept, self._through.state_dict()))

    def outline(self) -> tuple[object, Sequence[Array]]:
        arrays: list[Array] = []
        return self._outlined(self._through.state_dict(), arrays), arrays

    def receive(self, outline: Any) -> Sequence[Array]:
        arrays: list[Array] = []
        self._incoming = self._received(outline, self._through.state_dict(), arrays)
        return arrays

    def received(self) -> None:
        incoming, self._incoming = self._incoming, None
        self._through.load_state_dict(incoming)

    def reset(self) -> None:
        if isinstance(self.value, ElasticSampler | Batches | ElasticLoader):
            self.value.reset()

    def _is_array(self, value: object) -> bool:
        return self._arrays is not None and self._arrays.is_array(value)

    def _copied(self, value: Any, spare: Any) -> Any:
        if self._arrays is not None and self._arrays.is_array(value):
            return self._arrays.copy(value, spare if self._is_array(spare) else None)
        return _walked(value, spare, self._copied, copy.deepcopy)

    def _restored(self, value: Any, live: Any) -> Any:
        """The kept nest, as objects of the value's own: its live arrays where they fit, else copies."""
        if self._arrays is not None and self._arrays.is_array(value):
            fits = self._is_array(live) and self._arrays.write(live, value)
            return live if fits else self._arrays.copy(value, None)
        return _walked(value, live, self._restored, copy.deepcopy)

    def _outlined(self, value: Any, arrays: list[Array]) -> Any:
        if self._arrays is not None and self._arrays.is_array(value):
            outline = self._arrays.outline(value)
            if outline is None:
                return value
            arrays.append(value)
            return _Placeholder(len(arrays) - 1, outline)
        return _walked(value, None, lambda each, _: self._outlined(each, arrays), lambda each: each)

    def _received(self, value: Any, live: Any, arrays: list[Array]) -> Any:
        if isinstance(value, _Placeholder):
            assert self._arrays is not None
            arrays.append(self._arrays.receiver(value.outline, live if self._is_array(live) else None))
            return arrays[-1]
        return _walked(value, live, lambda each, other: self._received(each, other, arrays), lambda each: each)


def _walked(value: Any, beside: Any, inner: Callable[[Any, Any], Any], leaf: Callable[[Any], Any]) -> Any:
    """`inner` of the items of dicts, lists and tuples, each with that of `beside` in the same place; else `leaf`."""
    if isinstance(value, dict):
        there = beside if isinstance(beside, dict) else {}
        return {key: inner(item, there.get(key)) for key, item in value.items()}
    if type(value) in (list, tuple):
        others = beside if type(beside) is type(value) and len(beside) == len(value) else [None] * len(value)
        return type(value)(inner(*pair) for pair in zip(value, others, strict=True))
    return leaf(value)
