"""States: what a program saves, takes back after the loss of a rank, and makes equal on all ranks."""

from __future__ import annotations

import copy
import itertools
import pickle
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from farandole._api.errors import ArgumentError, ArgumentTypeError, FarandoleError, MismatchError
from farandole._api.objects import allgather_object, broadcast_object
from farandole._elastic import notices
from farandole._elastic.handlers import Arrays, StateDictHandler, StateHandler
from farandole._runtime import clock
from farandole._start import world

_NAMED = 3  # attributes in a message


class State:
    """The base of states. Derive from it to save and send a state in a way of one's own: `save`, `restore`, `sync`.

    Example:
        >>> class Steps(elastic.State):
        ...     step, saved = 0, 0
        ...
        ...     def save(self):
        ...         self.saved = self.step
        ...
        ...     def restore(self):
        ...         self.step = self.saved
        ...
        ...     def sync(self):
        ...         self.step = farandole.broadcast_object(self.step)
        >>> state = Steps()
        >>> state.step = 7
        >>> state.commit()
        >>> state.step = 9
        >>> state.restore()
        >>> state.step
        7
    """

    commits = 0
    """How many commits are in this state. After a loss all ranks go on from the state of the rank with the most."""

    def __init__(self, bcast_object: object = None, get_rank: object = None) -> None:
        """Both arguments are not needed, and accepted because Horovod's states have them."""
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Call these after each change of the ranks, before the function of `run` is called again.

        To set what depends on the number of ranks, such as the learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The ranks have changed. Called by `run`."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: object = None, update_res: object = None) -> None:
        """Does nothing: all ranks see a change at `check_host_updates`. Here because Horovod's states have it."""

    def commit(self) -> None:
        """Save the state, to which all ranks go back after a loss; then `check_host_updates`. Every rank calls it.

        Raises:
            HostsUpdatedInterrupt: ranks are to leave or wait to join; `run` goes on with those that there are then.
        """
        self.save()
        self.commits += 1
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if some are to leave or wait to join. Every rank calls it.

        An allreduce of eight bytes: where commits are rare it can be called at each step.
        """
        notices.check()

    def save(self) -> None:
        """Copy the state."""
        raise NotImplementedError(f"{type(self).__name__} must have a method save()")

    def restore(self) -> None:
        """Take back the last copy."""
        raise NotImplementedError(f"{type(self).__name__} must have a method restore()")

    def sync(self) -> None:
        """Make the state equal on all ranks. Collective."""
        raise NotImplementedError(f"{type(self).__name__} must have a method sync()")

    def reset(self) -> None:
        """Forget what depends on the ranks, or on a step that has failed."""


class ObjectState(State):
    """A state whose attributes are the keyword arguments, of any kind that can be copied and pickled.

    Those that have `state_dict()` and `load_state_dict()`, an ElasticSampler say, stay the objects that they are.

    Example:
        >>> state = elastic.ObjectState(epoch=0, losses=[])
        >>> state.losses.append(0.5)
        >>> state.commit()
        >>> state.losses.append(0.25)  # of a step that fails
        >>> state.restore()
        >>> state.losses
        [0.5]
        >>> other = elastic.ObjectState(epoch=1 + farandole.rank())
        >>> other.sync()  # all have as many commits: rank 0's
        >>> other.epoch
        1
    """

    _arrays: Arrays | None = None  # of the framework of a derived class

    if TYPE_CHECKING:  # the attributes are the keyword arguments

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, bcast_object: Callable[..., Any] | None = None, get_rank: object = None, **kwargs: Any) -> None:
        """The state begins with these values.

        Args:
            bcast_object: sends the attributes in place of `broadcast_object`, whose arguments it takes.
            get_rank: not needed; accepted because Horovod does.
            kwargs: the attributes.

        Raises:
            ValueError: an attribute that would hide a method of the state.
        """
        super().__init__()
        self._broadcast = bcast_object or broadcast_object
        self._names = sorted(kwargs)
        self._handlers: dict[str, StateHandler] = {}
        self._is_saved = False
        self._is_at_commit = False  # just restored
        self._was_synced = False  # unlike that of a rank that has just joined
        for name, value in kwargs.items():
            if hasattr(type(self), name):
                raise ArgumentError(
                    f"a state has {name!r} already, as a member of its own: give the value another name"
                )
            setattr(self, name, value)

    def save(self) -> None:
        """Copy all attributes; where one cannot be copied, the last copy stays whole."""
        made = {name: self._handler(name) for name in self._names}
        for name, handler in made.items():
            try:
                handler.copy()
            except Exception as error:
                if isinstance(error, FarandoleError | MemoryError) or not isinstance(
                    handler, _Object | StateDictHandler
                ):
                    raise
                says_all = isinstance(error, TypeError) and isinstance(handler, _Object)  # else code of the user's
                cause = None if says_all else error
                raise ArgumentTypeError(f"{self._described(name)} cannot be copied ({error}): {_REMEDY}") from cause
        for handler in made.values():
            handler.keep()
        self._handlers, self._is_saved, self._is_at_commit = made, True, False

    def restore(self) -> None:
        """Take back the last copy.

        Raises:
            FarandoleError: there is none.
        """
        if not self._is_saved:
            raise FarandoleError(
                f"this {type(self).__name__} was never saved, so there is nothing to go back to: elastic.run saves it "
                "at its start; else call commit() or sync() first"
            )
        ObjectState.reset(self)  # of a derived class its own is called after the change of the ranks
        for name, handler in self._handlers.items():
            handler.restore()
            setattr(self, name, handler.value)
        self._is_at_commit = True

    def sync(self) -> None:
        """Take over the state of the rank with the most commits, of several the lowest one, and save it. Collective.

        Nothing is sent where all ranks have just gone back to the same commit.

        Raises:
            MismatchError: the ranks' states have not the same attributes.
            TypeError: an attribute that cannot be pickled.
        """
        if not self._is_saved:
            self.save()  # so that a loss meanwhile can be taken back
        if world.size() > 1:
            root_rank, commits, are_equal = self._root()
            self._is_at_commit = False
            if are_equal:
                return
            self._exchange(root_rank)
            self.commits = commits
        self.save()
        self._was_synced = True

    def reset(self) -> None:
        """Forget what the attributes know of a step that has failed, and of ranks that are no more."""
        for name in self._names:
            self._handler(name).reset()

    def _handler_of(self, value: Any) -> StateHandler | None:
        """A new handler for an attribute; None for what is copied and pickled as a whole."""
        has_both = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
        return None if isinstance(value, type) or not has_both else StateDictHandler(value)

    def _handler(self, name: str) -> StateHandler:
        """The attribute's handler; a new one where it is another object by now."""
        value, last = getattr(self, name), self._handlers.get(name)
        if last is not None and not isinstance(last, _Object) and last.value is value:
            return last
        return self._handler_of(value) or (last if isinstance(last, _Object) else _Object(self, name))

    def _root(self) -> tuple[int, int, bool]:
        """The rank whose state all take, its commits, and whether all are at that commit already.

        Raises MismatchError where attributes differ.
        """
        kinds = [repr(name) + self._handled_as(name) for name in self._names]
        mine = [2 * self.commits + self._was_synced, zlib.crc32(repr(kinds).encode()), self._is_at_commit]
        told = clock.allgather(mine, "farandole.elastic.state")
        ages, sums, at_commit = told[::3], told[1::3], told[2::3]
        commits = [age // 2 for age in ages]
        if len(set(sums)) > 1:
            raise MismatchError(_difference(allgather_object(kinds, "farandole.elastic.attributes")))
        return ages.index(max(ages)), max(commits), all(at_commit) and 0 < min(commits) == max(commits)

    def _exchange(self, root_rank: int) -> None:
        handlers = {name: self._handler(name) for name in self._names}
        arrays: list[Any] = []
        is_root = world.rank() == root_rank
        told: tuple[str, Any] | None = None
        if is_root:
            told = self._outlined(handlers, arrays)
        problem, payload = self._broadcast(told, root_rank=root_rank)
        if problem:
            raise ArgumentTypeError(problem)
        if not is_root:
            outlines = pickle.loads(payload)
            for name, handler in handlers.items():
                arrays += handler.receive(outlines[name])
        if self._arrays is not None:
            self._arrays.broadcast(arrays, root_rank)
        if not is_root:
            for handler in handlers.values():
                handler.received()

    def _outlined(self, handlers: dict[str, StateHandler], arrays: list[Any]) -> tuple[str, Any]:
        """Of the root: what it cannot send, or pickled what it sends, since an error is one of all ranks."""
        outlines: dict[str, Any] = {}
        for name, handler in handlers.items():
            outlines[name], some = handler.outline()
            arrays += some
        try:
            return "", _pickled(outlines)
        except Exception:
            for name, outline in outlines.items():
                try:
                    _pickled(outline)
                except Exception as error:
                    return f"{self._described(name)} cannot be sent to other ranks ({error}): {_REMEDY}", None
            raise

    def _handled_as(self, name: str) -> str:
        handler = self._handler(name)
        return "" if isinstance(handler, _Object) else f" ({type(handler.value).__name__})"

    def _described(self, name: str) -> str:
        return f"{name!r} of the state, a {type(getattr(self, name)).__name__},"


def _pickled(value: object) -> bytes:
    from farandole._runtime import pickling  # whose import takes long

    return bytes(pickling.dumps(value))


def _difference(of_ranks: Sequence[Sequence[str]]) -> str:
    """Of lists of attributes that are not all equal."""
    told = []
    for rank, other in itertools.permutations(range(len(of_ranks)), 2):
        only = [each for each in of_ranks[rank] if each not in of_ranks[other]]
        if only:
            more = f" and {len(only) - _NAMED} more" if len(only) > _NAMED else ""
            told.append(f"rank {rank} has {'; '.join(only[:_NAMED])}{more}, which rank {other} lacks")
    return f"the ranks' states differ: {' and '.join(told[:2])}; give the state the same attributes on all ranks"


_REMEDY = "leave it out of the state and make it anew in the function, or give it state_dict() and load_state_dict()"


class _Object:
    """A `StateHandler` of an attribute that is copied and pickled as a whole."""

    def __init__(self, state: ObjectState, name: str) -> None:
        self._state, self._name = state, name
        self._kept: Any = None
        self._copy: Any = None
        self._incoming: Any = None

    @property
    def value(self) -> Any:
        return getattr(self._state, self._name)

    @value.setter
    def value(self, value: Any) -> None:
        setattr(self._state, self._name, value)

    def copy(self) -> None:
        self._copy = copy.deepcopy(self.value)

    def keep(self) -> None:
        self._kept, self._copy = self._copy, None

    def restore(self) -> None:
        self.value = copy.deepcopy(self._kept)

    def outline(self) -> tuple[object, Sequence[Any]]:
        return self.value, ()

    def receive(self, outline: Any) -> Sequence[Any]:
        self._incoming = outline
        return ()

    def received(self) -> None:
        self.value, self._incoming = self._incoming, None

    def reset(self) -> None:
        pass
