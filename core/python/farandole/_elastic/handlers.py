"""Copies, restores and sends single attributes of a state.

    commit    copy() for every attribute, into the memory of the last commit but one; then keep() for every attribute
    restore   restore() gives the attribute its kept value
    sync      holders: outline(), arrays                  what pickle sends, and the arrays, which are sent separately
              takers:  receive(outline) -> arrays         into which the arrays are received; then received()

If copying fails half-way, the kept values stay. A plugin supplies the arrays of its framework.
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
    """Access to the arrays of a framework: tensors or variables."""

    def copy(self, array: Array, spare: Any) -> Any:
        """Return a copy of the array, in the memory of `spare` (an earlier copy, or None) if it fits."""

    def write(self, array: Array, copied: Any) -> bool:
        """Write the copy into the array. If it does not fit, write nothing and return False."""

    def broadcast(self, arrays: Sequence[Array], root_rank: int) -> None:
        """Copy the arrays of `root_rank` into those of all ranks. Collective."""

    def size_bytes(self, array: Array) -> int:
        """Return the size of all elements, in bytes."""

    def memory(self, array: Array) -> memoryview | None:
        """Return the array's own memory, flat and writable, or None if it has none on the host."""

    def read(self, array: Array) -> memoryview:
        """Return the bytes of the elements, flat, as a copy or unchanging view; for arrays without `memory`."""

    def fill(self, array: Array, content: memoryview) -> None:
        """Write bytes that another rank has read. The array may keep their memory."""


class NestedArrays(Arrays, Protocol):
    """Arrays inside dictionaries and lists, such as those of a `state_dict()`."""

    def is_array(self, value: object) -> bool:
        """Return whether the value is an array of this framework that `copy` takes."""

    def outline(self, array: Array) -> object | None:
        """Return a picklable object from which `receiver` makes an array, or None if the array itself is pickled."""

    def receiver(self, outline: Any, live: Array | None) -> Array:
        """Return an array that matches the outline: `live` if it fits, else a new one."""


class StateHandler(ABC):
    """Saves, restores and sends one attribute of a state, `value`."""

    value: Any
    _kept: Any = None
    _copy: Any = None

    @abstractmethod
    def copy(self) -> None:
        """Copy the present value."""

    def keep(self) -> None:
        """Let `restore` use this copy from now on."""
        self._kept, self._copy = self._copy, self._kept

    @abstractmethod
    def restore(self) -> None:
        """Give the value its kept content."""

    def structure(self) -> Sequence[str]:
        """Return lines that must be equal on all ranks before a rank can take another's value."""
        return ()

    @abstractmethod
    def outline(self) -> tuple[object, Sequence[Array]]:
        """Return the object that a holder sends, and the arrays that it sends after it."""

    @abstractmethod
    def receive(self, outline: Any) -> Sequence[Array]:
        """Return the arrays that receive what follows a holder's outline."""

    def received(self) -> None:
        """Take over the arrays, which have been filled."""
        return

    def reset(self) -> None:
        """Forget what the value has kept about a failed step or about lost ranks."""
        return


Reader = Callable[[], list[Array]]


class VariablesHandler(StateHandler):
    """A `StateHandler` of a value whose variables stay the same objects, in the same order on all ranks."""

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
    """Placeholder for an array in an outline; the array follows."""

    index: int
    outline: Any


class StateDictHandler(StateHandler):
    """A `StateHandler` of a value with `state_dict` and `load_state_dict`, unless `through` has these methods."""

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
        """Return the kept content, in the value's own arrays where it fits, else in copies."""
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
    """Apply `inner` to each item of a dict, list or tuple and its counterpart in `beside`; else `leaf` to the value."""
    if isinstance(value, dict):
        there = beside if isinstance(beside, dict) else {}
        return {key: inner(item, there.get(key)) for key, item in value.items()}
    if type(value) in (list, tuple):
        others = beside if type(beside) is type(value) and len(beside) == len(value) else [None] * len(value)
        return type(value)(inner(*pair) for pair in zip(value, others, strict=True))
    return leaf(value)
