"""The state of an elastic program: what it saves at each commit, takes back after a loss, and makes equal on all ranks.

An attribute of a state is handled by its type. A plain object is copied, and travels pickled; plugins register what
they know better, such as a model whose tensors are copied into the memory of the last but one commit.
"""

from __future__ import annotations

import copy
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from farandole._api.errors import ArgumentTypeError, MismatchError
from farandole._api.objects import allgather_object, broadcast_object
from farandole._elastic import notices
from farandole._runtime import pickling
from farandole._start import world


class Part(ABC):
    """One attribute that is not copied as a plain object."""

    @abstractmethod
    def save(self) -> None:
        """Copy the value. The copy before this one stays until `keep`."""

    @abstractmethod
    def keep(self) -> None:
        """The last copy is that of the last commit from now on."""

    @abstractmethod
    def restore(self) -> None:
        """Make the value that of the last commit."""

    @abstractmethod
    def sync(self, root_rank: int) -> None:
        """Make the value that of this rank's on all ranks. Collective."""


MakePart = Callable[[Any], Part]


class State:
    """Attributes that all ranks have in common, and take back when a rank is lost.

    Args:
        **attributes: the values that the attributes begin with. Each is a plain object, or what the plugin knows:
            models, optimizers, samplers.

    Raises:
        TypeError: an attribute cannot be copied.

    Example:
        >>> state = elastic.State(step=0, history=[])
        >>> state.step = 3
        >>> state.restore()
        >>> state.step
        0
    """

    _makers: ClassVar[list[tuple[type | tuple[type, ...], MakePart]]] = []

    def __init__(self, **attributes: Any) -> None:
        self._names = tuple(attributes)
        self._parts: dict[str, tuple[Any, Part]] = {}  # with the value that each is for
        self._saved: dict[str, Any] = {}
        self._reset_callbacks: list[Callable[[], object]] = []
        self.commits = 0
        """How many commits this rank has made."""
        self.__dict__.update(attributes)
        self.save()

    def register_reset_callbacks(self, callbacks: list[Callable[[], object]]) -> None:
        """Functions to call in each new world, before the training function: to set a learning rate by `size()`, say.

        They are called in this order, after those that are registered already.

        Example:
            >>> state = elastic.State(step=0)
            >>> state.register_reset_callbacks([lambda: print("a new world")])
            >>> state.on_reset()
            a new world
        """
        self._reset_callbacks += callbacks

    def on_reset(self) -> None:
        """A new world begins. `elastic.run` calls this; override `reset` to do something."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def reset(self) -> None:
        """For subclasses: a new world has begun."""

    def on_hosts_updated(self, timestamp: object, update_res: object) -> None:
        """Here because Horovod has it: its driver calls this, and nobody does here."""

    def commit(self) -> None:
        """Save the state, and look whether ranks leave. All ranks call it, at the same step.

        Raises:
            HostsUpdatedInterrupt: a rank has been told to leave; `elastic.run` catches it.

        Example:
            >>> state = elastic.State(step=0)
            >>> state.step = 1
            >>> state.commit()
            >>> state.commits
            1
        """
        self.save()
        self.commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Look whether ranks leave, without saving. All ranks call it, at the same step.

        Raises:
            HostsUpdatedInterrupt: a rank has been told to leave; `elastic.run` catches it.

        Example:
            >>> elastic.State(step=0).check_host_updates()
        """
        notices.check()

    def save(self) -> None:
        """Copy all attributes. An error leaves the last copy as it was."""
        saved = {name: self._copied(name) for name in self._names if not self._part_of(name)}
        parts = [part for _, part in self._parts.values()]
        for part in parts:
            part.save()
        for part in parts:
            part.keep()
        self._saved = saved

    def restore(self) -> None:
        """Take back the last commit, or what the state began with."""
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))
        for name, (value, part) in self._parts.items():
            setattr(self, name, value)
            part.restore()

    def sync(self) -> None:
        """Make the state equal on all ranks: that of the lowest rank among those with the most commits. Collective.

        Raises:
            MismatchError: the ranks have other attributes.
            TypeError: an attribute cannot be pickled.
        """
        if world.size() == 1:
            self.save()
            return
        plain, why = self._pickled()
        everybody = allgather_object((self.commits, self._names, why), "farandole.elastic.state")
        self._check(everybody)
        counts = [commits for commits, _, _ in everybody]
        root = counts.index(max(counts))
        received = pickle.loads(broadcast_object(plain, root, "farandole.elastic.attributes"))
        if root != world.rank():
            for name, value in received.items():
                setattr(self, name, value)
        for name in sorted(self._parts):
            self._parts[name][1].sync(root)
        self.commits = max(counts)
        self.save()

    def _part_of(self, name: str) -> Part | None:
        """The part of an attribute, for its present value; None where that is a plain object."""
        value = getattr(self, name)
        known = self._parts.get(name)
        if known is not None and known[0] is value:
            return known[1]
        make = next((make for kinds, make in type(self)._makers if isinstance(value, kinds)), None)
        if make is None:
            self._parts.pop(name, None)
            return None
        self._parts[name] = value, make(value)
        return self._parts[name][1]

    def _copied(self, name: str) -> Any:
        value = getattr(self, name)
        try:
            return copy.deepcopy(value)
        except Exception as error:
            raise _unfit(name, value, "copied", error) from error

    def _pickled(self) -> tuple[bytes, str]:
        """The plain attributes, or why they cannot travel."""
        plain = {name: getattr(self, name) for name in self._names if not self._part_of(name)}
        for name, value in plain.items():
            try:
                pickling.dumps(value)
            except Exception as error:
                return b"", str(_unfit(name, value, "pickled", error))
        return bytes(pickling.dumps(plain)), ""

    def _check(self, everybody: list[tuple[int, tuple[str, ...], str]]) -> None:
        """Raises on all ranks, for the same reason."""
        for _, _, why in everybody:
            if why:
                raise ArgumentTypeError(why)
        first = set(everybody[0][1])
        for rank, (_, names, _) in enumerate(everybody):
            if other := sorted(first.symmetric_difference(names)):
                has = other[0] in names
                raise MismatchError(
                    f"the ranks have states with other attributes: rank {rank if has else 0} has {other[0]!r}, rank "
                    f"{0 if has else rank} has not; make the state alike on all ranks"
                )


class ObjectState(State):
    """A state of plain objects.

    Args:
        bcast_object: here because Horovod has it; not needed.
        get_rank: likewise.
        **kwargs: the attributes.

    Example:
        >>> state = elastic.ObjectState(epoch=0, batch=0)
        >>> state.epoch
        0
    """

    def __init__(self, bcast_object: object = None, get_rank: object = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)


def _unfit(name: str, value: object, what: str, error: Exception) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"attribute {name!r} of the state, of type {type(value).__name__}, cannot be {what} ({error}); keep it outside "
        "of the state, or leave that part out"
    )
