"""States, which a program saves, restores after the loss of a rank, and makes equal on all ranks."""

from __future__ import annotations

import copy
import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from farandole._api.errors import ArgumentError, ArgumentTypeError, FarandoleError, MismatchError
from farandole._api.objects import allgather_object
from farandole._elastic import copies, exchange, notices
from farandole._elastic.handlers import Arrays, StateDictHandler, StateHandler
from farandole._runtime import clock
from farandole._start import world

_NAMED = 3  # at most so many attributes are named in a message
_MOST_SYNCS = 1 << 20  # of a state between two commits


class State:
    """Base class of states. Derive from it and define `save`, `restore` and `sync` to handle a state in your own way.

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

    _commits = 0  # after a loss, all ranks go on from the state of the rank with the most commits
    _is_at_commit = False  # whether the state was just restored, or its function interrupted, at a commit

    def __init__(self, bcast_object: object = None, get_rank: object = None) -> None:
        """Accept two arguments that have no effect, because Horovod's states have them."""
        self._reset_callbacks: list[Callable[[], object]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], object]]) -> None:
        """Register functions to call after each change of the ranks, before `run` calls its function again.

        Use them to set what depends on the number of ranks, such as the learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Call the reset callbacks. `run` calls this when the ranks have changed."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: object = None, update_res: object = None) -> None:
        """Do nothing: all ranks see a change in `check_host_updates`. Horovod's states have this method."""

    def commit(self) -> None:
        """Save the state, to which all ranks go back after a loss, then call `check_host_updates`. Collective.

        Raises:
            HostsUpdatedInterrupt: ranks must leave or wait to join; `run` goes on with the new set of ranks.
            TypeError: commits are kept outside the ranks, and an attribute cannot be pickled; raised on all ranks.
        """
        self.save()
        self._commits += 1
        try:
            copies.offer(self)
        except Exception as error:  # on rank 0, while the others go on to the check
            notices.report(error)
        self._is_at_commit = True
        self.check_host_updates()
        self._is_at_commit = False

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if some must leave or wait to join. Collective.

        It costs an allreduce of eight bytes. If commits are rare, call it at each step.
        """
        notices.check()

    def save(self) -> None:
        """Copy the state."""
        raise NotImplementedError(f"{type(self).__name__} must have a method save()")

    def restore(self) -> None:
        """Restore the last copy."""
        raise NotImplementedError(f"{type(self).__name__} must have a method restore()")

    def sync(self) -> None:
        """Make the state equal on all ranks. Collective."""
        raise NotImplementedError(f"{type(self).__name__} must have a method sync()")

    def reset(self) -> None:
        """Forget what depends on the ranks or on a failed step."""

    def _check_copies(self) -> None:
        """Raise NotImplementedError or TypeError if this state cannot be kept outside the ranks."""
        for name in ("to_copy", "from_copy"):
            self._own_method(name)

    def _to_copy(self) -> Sequence[copies.Piece]:
        """Return the state as pieces of bytes, for a job that keeps its commits outside the ranks."""
        pieces: Sequence[copies.Piece] = self._own_method("to_copy")()
        return pieces

    def _from_copy(self, content: memoryview) -> None:
        """Load the state and its number of commits from the joined pieces of `to_copy`."""
        self._own_method("from_copy")(content)

    def _own_method(self, name: str) -> Callable[..., Any]:
        """Return the method of the class, because a user's attribute may have the same name."""
        if not callable(getattr(type(self), name, None)):
            raise NotImplementedError(f"{type(self).__name__} {_NEEDS_COPIES}")
        method: Callable[..., Any] = getattr(self, name)
        return method


class ObjectState(State):
    """A state whose attributes are the keyword arguments, which can be anything that can be copied and pickled.

    Attributes with `state_dict()` and `load_state_dict()`, such as an ElasticSampler, stay the same objects.

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

    _arrays: Arrays | None = None  # access to the framework's arrays, in a derived class

    if TYPE_CHECKING:  # the attributes are the keyword arguments

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, bcast_object: Callable[..., Any] | None = None, get_rank: object = None, **kwargs: Any) -> None:
        """Create a state with these attributes.

        Args:
            bcast_object: function that sends the attributes instead of `broadcast_object`, with the same arguments.
            get_rank: has no effect; accepted because Horovod's states have it.
            kwargs: the attributes and their values.

        Raises:
            ValueError: an attribute would hide a method of the state.
        """
        super().__init__()
        self._broadcast = bcast_object
        self._names = sorted(kwargs)
        self._handlers: dict[str, StateHandler] = {}
        self._is_saved = False
        self._syncs = 0  # syncs since the last commit; 0 on a rank that has just joined
        self._kept_syncs = 0  # `_syncs` of the last copy
        for name, value in kwargs.items():
            if hasattr(ObjectState, name) or name in vars(self):
                raise ArgumentError(f"a state already has a member {name!r}: give the value another name")
            setattr(self, name, value)

    def save(self) -> None:
        """Copy all attributes. If one cannot be copied, the last copy stays complete."""
        made = {name: self._handler(name) for name in self._names}
        for name, handler in made.items():
            try:
                handler.copy()
            except Exception as error:
                if isinstance(error, FarandoleError | MemoryError) or not isinstance(
                    handler, _Object | StateDictHandler
                ):
                    raise
                says_all = isinstance(error, TypeError) and isinstance(handler, _Object)  # else the user's code
                cause = None if says_all else error
                raise ArgumentTypeError(f"{self._described(name)} cannot be copied ({error}): {_REMEDY}") from cause
        for handler in made.values():
            handler.keep()
        self._handlers, self._is_saved, self._is_at_commit = made, True, False
        self._kept_syncs = self._syncs

    def restore(self) -> None:
        """Restore the last copy.

        Raises:
            FarandoleError: there is no copy.
        """
        if not self._is_saved:
            raise FarandoleError(
                f"this {type(self).__name__} was never saved, so there is nothing to go back to: elastic.run saves it "
                "at its start; else call commit() or sync() first"
            )
        ObjectState.reset(self)  # the method of a derived class is called after the ranks have changed
        for name, handler in self._handlers.items():
            handler.restore()
            setattr(self, name, handler.value)
        self._is_at_commit, self._syncs = True, self._kept_syncs

    def _before_sync(self) -> None:
        """Make equal what a framework's state handles itself. Collective."""

    def sync(self) -> None:
        """Give all ranks the newest state, which has the most commits, and save it. Collective.

        The ranks that have it send a share each to those that lack it. Where their copies differ, all ranks take that
        of the lowest one. Nothing is sent if all ranks have just gone back to the same commit.

        Raises:
            MismatchError: the ranks' states have different attributes, or an attribute has different variables.
            TypeError: an attribute cannot be pickled.
        """
        if not self._is_saved:
            self.save()  # so that it can be restored if a rank is lost meanwhile
        self._before_sync()
        if world.size() > 1:
            holders, age, are_equal = self._holders()
            is_kept, self._is_at_commit = self._is_at_commit, False
            if are_equal:
                return
            handlers = {name: self._handler(name) for name in self._names}
            has_taken = exchange.make_equal(handlers, self._arrays, holders, self._refusal, self._broadcast)
            self._commits, self._syncs = divmod(age, _MOST_SYNCS)
            if is_kept and not has_taken:  # reset callbacks may have changed something since, so the copy is older
                self._syncs += 1
                return
        self._syncs += 1
        self.save()

    def reset(self) -> None:
        """Forget what the attributes have kept about a failed step or about lost ranks."""
        for name in self._names:
            self._handler(name).reset()

    def _check_copies(self) -> None:
        """Do nothing: the handlers can keep every attribute outside the ranks."""

    def _to_copy(self) -> Sequence[copies.Piece]:
        """Return the state as pieces of bytes, for a job that keeps its commits outside the ranks.

        Raises:
            TypeError: an attribute cannot be pickled.
        """
        handlers = {name: self._handler(name) for name in self._names}
        return exchange.pack(handlers, self._arrays, (self._commits, self._syncs, self._kinds()), self._refusal)

    def _from_copy(self, content: memoryview) -> None:
        """Load the state from the joined pieces of `to_copy`, and save it.

        Raises:
            MismatchError: the copy has other attributes or other variables.
        """
        commits, syncs, kinds = exchange.about_in(content)
        if kinds != self._kinds():
            raise MismatchError(
                f"the state does not fit the last commit, which has {_contents(kinds)}, while this rank has "
                f"{_contents(self._kinds())}; make the same model and optimizer for any number of ranks"
            )
        exchange.unpack(content, {name: self._handler(name) for name in self._names}, self._arrays)
        self._commits, self._syncs = commits, syncs
        self.save()

    def _handler_of(self, value: Any) -> StateHandler | None:
        """Return a new handler for an attribute, or None if it is copied and pickled as a whole."""
        has_both = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
        return None if isinstance(value, type) or not has_both else StateDictHandler(value)

    def _farandole_handlers(self) -> list[StateHandler]:
        """Return the handlers of all attributes, for the states of frameworks."""
        return [self._handler(name) for name in self._names]

    def _handler(self, name: str) -> StateHandler:
        """Return the attribute's handler, or a new one if the attribute has been replaced by another object."""
        value, last = getattr(self, name), self._handlers.get(name)
        if last is not None and not isinstance(last, _Object) and last.value is value:
            return last
        return self._handler_of(value) or (last if isinstance(last, _Object) else _Object(self, name))

    def _holders(self) -> tuple[list[int], int, bool]:
        """Return the ranks with the newest state, its age, and whether all ranks are already at that commit.

        Of two states with the same number of commits, the one with more syncs is newer: a sync may save a state that
        is steps ahead of the commit, while a rank that did not finish the sync goes back to the commit.

        Raises MismatchError if attributes differ.
        """
        kinds = self._kinds()
        mine = [self._commits * _MOST_SYNCS + self._syncs, zlib.crc32(repr(kinds).encode()), self._is_at_commit]
        gathered = clock.allgather(mine, "farandole.elastic.state")
        ages, sums, at_commit = gathered[::3], gathered[1::3], gathered[2::3]
        if len(set(sums)) > 1:
            raise MismatchError(_difference(allgather_object(kinds, "farandole.elastic.attributes")))
        newest = max(ages)
        are_equal = all(at_commit) and min(ages) == newest >= _MOST_SYNCS
        return [rank for rank, age in enumerate(ages) if age == newest], newest, are_equal

    def _kinds(self) -> tuple[list[str], list[str]]:
        """Return the lines that must be equal on all ranks: the attributes, and the parts of attributes."""
        titles, parts = [], []
        for name in self._names:
            handler = self._handler(name)
            titles.append(repr(name) + ("" if isinstance(handler, _Object) else f" ({type(handler.value).__name__})"))
            parts += [f"{part} of {titles[-1]}" for part in handler.structure()]
        return titles, parts

    def _refusal(self, name: str, error: Exception) -> str:
        return f"{self._described(name)} cannot be sent to other ranks ({error}): {_REMEDY}"

    def _described(self, name: str) -> str:
        return f"{name!r} of the state, a {type(getattr(self, name)).__name__},"


def _difference(of_ranks: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Describe how the attributes of the ranks differ, or else their parts."""
    titles, parts = zip(*of_ranks, strict=True)
    have_equal_titles = all(each == titles[0] for each in titles)
    lists = parts if have_equal_titles else titles
    sentences = []
    for rank, other in itertools.permutations(range(len(lists)), 2):
        only = [each for each in lists[rank] if each not in lists[other]]
        if only:
            more = f" and {len(only) - _NAMED} more" if len(only) > _NAMED else ""
            sentences.append(f"rank {rank} has {'; '.join(only[:_NAMED])}{more}, which rank {other} lacks")
    listed = " and ".join(sentences[:2])
    if have_equal_titles:
        return f"the ranks' states differ: {listed}; make the same model and optimizer on all ranks"
    return f"the ranks' states differ: {listed}; give the state the same attributes on all ranks"


def _contents(kinds: tuple[Sequence[str], Sequence[str]]) -> str:
    titles, parts = kinds
    return f"{', '.join(titles)[:200]} of {len(parts)} variables"


_NEEDS_COPIES = (
    "cannot be saved outside of its ranks, as this job requires; derive it from ObjectState, or give it to_copy() and "
    "from_copy()"
)
_REMEDY = "leave it out of the state and create it in the function, or give it state_dict() and load_state_dict()"


class _Object(StateHandler):
    """A `StateHandler` for an attribute that is copied and pickled as a whole."""

    def __init__(self, state: ObjectState, name: str) -> None:
        self._state, self._name = state, name
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
