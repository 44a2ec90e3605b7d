"""Process sets: subsets of the ranks that an operation can be restricted to.

A set is known by its ranks, so any ProcessSet of the same ranks names it. The core numbers the sets of a world; what
was added is added again, in the same order, to the next world of this process.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from farandole._api.earlier import await_earlier
from farandole._api.errors import ArgumentError, not_initialized
from farandole._api.ops import Kind
from farandole._api.refusals import CallGuard
from farandole._runtime.native import core
from farandole._start.communicators import Communicator, communicator, ranks_of

if TYPE_CHECKING:
    from farandole._core import Handle

_Ranks = tuple[int, ...]
T = TypeVar("T")
Exchange = Callable[[dict[int, _Ranks] | None], list[dict[int, _Ranks] | None]]


def _checked_ranks(ranks: Iterable[int]) -> _Ranks:
    try:
        checked = tuple(sorted({each.__index__() for each in ranks}))
    except (TypeError, AttributeError):
        raise ArgumentError(f"a process set consists of ranks, such as [0, 1], not of {ranks!r}") from None
    if not checked:
        raise ArgumentError("a process set needs at least one rank")
    if checked[0] < 0:
        raise ArgumentError(f"a process set consists of ranks, which are at least 0, not {checked[0]}")
    return checked


class ProcessSet:
    """A subset of the world's ranks. All ranks must add it before use, with `add_process_set` or `init`.

    Args:
        ranks_or_comm: ranks of the world, in any order; one that comes twice counts once. Or an MPI communicator of
            mpi4py, for its ranks; the world is then that of init(comm=...), or MPI.COMM_WORLD.

    Raises:
        ValueError: no ranks, or something else than numbers from 0 on; a communicator with others than the world's.

    Example:
        >>> hvd.ProcessSet([1, 0, 1]).ranks
        [0, 1]
    """

    def __init__(self, ranks_or_comm: Iterable[int] | Communicator) -> None:
        self._comm = communicator(ranks_or_comm)
        self._ranks: _Ranks | None  # None: the whole world
        if self._comm is None:
            self._ranks = _checked_ranks(cast(Iterable[int], ranks_or_comm))
        else:
            self._ranks = _checked_ranks(ranks_of(self._comm, _state.comm))
        _state.known.add(self)
        self._checked_in: dict[_Ranks, int] | None = None  # the table of sets in which this set was last found usable
        self._usable_id = 0

    @property
    def ranks(self) -> list[int]:
        """The ranks of the set, in ascending order. Those of `global_process_set` are known only while initialized."""
        return list(_state.everybody() if self._ranks is None else self._ranks)

    @property
    def process_set_id(self) -> int | None:
        """The number of the set, the same on all ranks; None while this world has no such set."""
        if self._ranks is None:
            return 0
        return _state.ids.get(self._ranks)

    @property
    def mpi_comm(self) -> Communicator | None:
        """The MPI communicator that the set was made from; None if it was made from ranks."""
        return self._comm

    def size(self) -> int | None:
        """Number of ranks in the set; None while this world has no such set."""
        return len(self.ranks) if self._is_there() else None

    def rank(self) -> int | None:
        """This process's place among the set's ranks, from 0 on; None while this world has no such set.

        Raises:
            ValueError: this process is not in the set.
        """
        if not self._is_there():
            return None
        rank, ranks = _state.place[0], self.ranks
        if rank not in ranks:
            raise ArgumentError(f"rank {rank} is not in {self}, so it has no rank there; ask included() first")
        return ranks.index(rank)

    def included(self) -> bool | None:
        """Return whether this process is in the set; None while this world has no such set."""
        return _state.place[0] in self.ranks if self._is_there() else None

    def _is_there(self) -> bool:
        return _state.place[1] > 0 and self.process_set_id is not None

    def __repr__(self) -> str:
        return "global_process_set" if self._ranks is None else f"ProcessSet({list(self._ranks)})"

    def __reduce__(self) -> str | tuple[type[ProcessSet], tuple[list[int]]]:
        return "global_process_set" if self._ranks is None else (ProcessSet, (list(self._ranks),))


ProcessSets = Sequence[ProcessSet | Sequence[int]] | Literal["dynamic"]
"""What `init(process_sets=...)` takes."""


class OwnProcessSet(ProcessSet):
    """A set apart from all other sets of the same ranks, with its own order of unnamed operations.

    Only this object names it, and only in the world in which `add_own_process_set` made it.
    """

    @property
    def process_set_id(self) -> int | None:
        """The id, as of any set."""
        return _state.own.get(self)


class _State:
    """The sets of this process's world, and those for its next world."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.place = (0, 0)  # rank and size; size 0 while not initialized
        self.ids: dict[_Ranks, int] = {}  # of this world, in the order of adding; never changed, only replaced
        self.comm: Communicator | None = None  # that of init
        self.wanted: list[_Ranks] = []  # added and not removed, those included that do not fit this world
        self.numbered: dict[int, _Ranks] = {}  # as added to the core of this world and not removed, by their numbers
        self.own: dict[OwnProcessSet, int] = {}  # of this world, with their numbers
        self.interrupted: dict[tuple[str, _Ranks], Handle[None]] = {}  # additions to `own`, by names: see own_sets.py
        self.members: tuple[int, ...] = ()  # of an elastic job: the process that each rank above means
        self.is_outside = False  # of a world that this process is to join
        self.known: weakref.WeakSet[ProcessSet] = weakref.WeakSet()

    def everybody(self) -> _Ranks:
        return tuple(range(self.place[1]))


_state = _State()


global_process_set = ProcessSet([0])
global_process_set._ranks = None


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a set usable. Every rank of the world must call it, those outside the set included, in the same order.

    The set outlives the world: it is added again by the `init()` after a `shutdown()`, perhaps under another number,
    unless that world is too small for it.

    Args:
        process_set: the set, or its ranks.

    Returns:
        The set.

    Raises:
        ValueError: this world has a set of these ranks already, or lacks one of the ranks, or these ranks are in as
            many sets as can be, 63.
        MismatchError: the ranks ask for different sets, even if one of them has its set already.

    Example:
        >>> first = hvd.add_process_set([0])
        >>> first.included() == (hvd.rank() == 0)
        True
        >>> hvd.remove_process_set(first)
        True
    """
    with CallGuard(None, 0):
        added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
        if added._ranks and _state.place[1]:
            _check_fits(added._ranks, _state.place[1])
    with _state.lock:
        ranks = added._ranks or _state.everybody()
        _need_world()
        if ranks in _state.ids:
            # Raise on every rank: the others may ask for another set, and would wait for one that refuses by itself.
            # The core would make a second, equal set. It reports ranks that disagree; otherwise that set is removed.
            _remove_from_core(_add_to_core(ranks))
            raise _present(ranks, _state.ids)
        _register(ranks)
        if ranks not in _state.wanted:
            _state.wanted.append(ranks)
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forget a set. Every rank of the world must call it, those outside the set included, in the same order.

    Returns:
        Whether there was such a set to forget: False for `global_process_set`, which stays, and for one that was not
        added.

    Example:
        >>> hvd.remove_process_set(hvd.add_process_set([1]))
        True
        >>> hvd.remove_process_set(hvd.global_process_set)
        False
    """
    with CallGuard(None, 0):
        if not isinstance(process_set, ProcessSet):
            raise ArgumentError(f"remove_process_set takes a ProcessSet, not {process_set!r}")
    ranks = process_set._ranks
    with _state.lock:
        _need_world()
        number = None if ranks is None else _state.ids.get(ranks)
        if ranks not in _state.wanted:
            return False
        if number is not None:
            _remove_from_core(number)
            _state.ids = {other: each for other, each in _state.ids.items() if other != ranks}
            del _state.numbered[number]
        _state.wanted.remove(ranks)
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Return the numbers and ranks of this world's sets, including the whole world's. Raises NotInitializedError.

    Example:
        >>> hvd.get_process_set_ids_and_ranks()
        {0: [0, 1]}
    """
    _need_world()
    return {number: list(ranks) for ranks, number in _state.ids.items()}


def process_set_included(process_set_id: int = 0) -> bool:
    """Return whether this process is in the set of this number.

    Raises:
        ValueError: this world has no such set.

    Example:
        >>> hvd.process_set_included(0)
        True
    """
    sets = get_process_set_ids_and_ranks()
    if process_set_id not in sets:
        raise ArgumentError(f"there is no process set {process_set_id}; there are {sorted(sets)}")
    return _state.place[0] in sets[process_set_id]


# ---- for the operations


def usable_id(process_set: ProcessSet | None) -> int:
    """Return the number of a set that this rank may use; None stands for the whole world.

    Raises ValueError for anything else, with what to do.
    """
    if process_set is None or process_set is global_process_set:
        return 0
    _check_is_set(process_set)
    if process_set._checked_in is not _state.ids:
        process_set._usable_id = _checked_id(process_set)
        process_set._checked_in = _state.ids
    return process_set._usable_id


def for_each_call(process_set: ProcessSet, make: Callable[[int], T]) -> Callable[[], T]:
    """Return a function that gives `make(usable_id(process_set))`, and calls `make` again only if sets have changed."""
    made_in: dict[_Ranks, int] | None = None
    made: T

    def current() -> T:
        nonlocal made_in, made
        if made_in is not _state.ids:
            made = make(usable_id(process_set))
            made_in = _state.ids
        return made

    return current


def size_of(process_set: ProcessSet | None) -> int:
    """Return the number of ranks of a set that `usable_id` has accepted."""
    _need_world()
    return _state.place[1] if process_set is None or process_set._ranks is None else len(process_set._ranks)


def is_alone(process_set: ProcessSet | None) -> bool:
    """Return whether this rank has no other rank to reduce gradients with: it is alone, or outside the set.

    Raises:
        ValueError: a set that this world does not have, or none at all.
    """
    if process_set is None:
        _need_world()
        return _state.place[1] == 1
    _check_is_set(process_set)
    if process_set.included() is None:
        raise _unknown(process_set)
    return not process_set.included() or process_set.size() == 1


def _check_is_set(thing: object) -> None:
    if not isinstance(thing, ProcessSet):
        raise ArgumentError(f"process_set={thing!r} is no ProcessSet; add_process_set(ranks) returns one")


def _checked_id(process_set: ProcessSet) -> int:
    _need_world()
    ranks, (rank, size) = process_set.ranks, _state.place
    if not ranks:
        raise ArgumentError(
            f"{process_set} is empty: all its ranks have left this elastic job; make another with add_process_set"
        )
    number = process_set.process_set_id
    if ranks[-1] >= size:
        raise ArgumentError(f"{process_set} has rank {ranks[-1]}, but this world has the ranks 0 to {size - 1} only")
    if number is None:
        raise _unknown(process_set)
    if rank not in ranks:
        raise ArgumentError(f"rank {rank} is not in {process_set}; make the call on the ranks of the set only")
    return number


# ---- for init and shutdown


def requested(process_sets: object, size: int, comm: Communicator | None = None) -> list[_Ranks]:
    """Return the first sets of a world of `size`: the sets of earlier worlds that fit, then the new ones.

    Raises ValueError for what init(process_sets=...) cannot be.
    """
    if process_sets is None or (isinstance(process_sets, str) and process_sets == "dynamic"):
        process_sets = []
    if not isinstance(process_sets, list | tuple):
        raise ArgumentError(f"init(process_sets=...) takes a list of ProcessSets, not {process_sets!r}")
    given: dict[_Ranks, int] = {tuple(range(size)): 0}
    for each in process_sets:
        added = each if isinstance(each, ProcessSet) else ProcessSet(each)
        if added._comm is not None:  # only now it is known which world its ranks belong to
            added._ranks = _checked_ranks(ranks_of(added._comm, comm))
        ranks = added._ranks or tuple(range(size))
        _check_fits(ranks, size)
        if ranks in given:
            raise _present(ranks, given)
        given[ranks] = len(given)
    earlier = [ranks for ranks in _state.wanted if ranks[-1] < size and ranks != tuple(range(size))]
    return earlier + [ranks for ranks in list(given)[1:] if ranks not in earlier]


def enter(rank: int, size: int, sets: Sequence[_Ranks], comm: Communicator | None = None) -> None:
    """Add the first sets of a new world, that of `comm`. Collective. The caller calls `leave` if this fails."""
    _begin(rank, tuple(range(size)), comm)
    _state.numbered = {}
    for ranks in sets:
        _register(ranks)
    _state.wanted += [ranks for ranks in sets if ranks not in _state.wanted]


def wait_outside(rank: int, size: int) -> None:
    """Record that this process waits to join a world, where its rank may change; until then nothing can be added."""
    _begin(rank, tuple(range(size)), None)
    _state.is_outside = True


def enter_epoch(rank: int, members: tuple[int, ...], exchange: Exchange) -> None:
    """Add the sets of the last world to the next world of an elastic job, under the same numbers. Collective.

    Each set keeps the members that are still there, and so does each ProcessSet of the program. A set that is empty
    then cannot be used. `members`: the numbers of the processes that are the ranks of the next world.
    `exchange`: returns what all ranks say, in their order.
    """
    sets = {number: _moved(ranks, members) for number, ranks in _state.numbered.items()}
    for each in list(_state.known):
        if each._ranks is not None:
            each._ranks, each._checked_in = _moved(each._ranks, members), None
    _state.wanted = [ranks for ranks in (_moved(each, members) for each in _state.wanted) if ranks]
    _begin(rank, members, None)
    # In each epoch: after a start that has failed half way not all know whether a newcomer has been told.
    answers = exchange(None if _state.is_outside else sets)
    sets = next((each for each in answers if each is not None), {})
    _state.is_outside = False
    _state.numbered = sets  # first, so that an attempt that fails half way forgets none
    for number in range(1, max(sets, default=0) + 1):
        added = _add_to_core(sets.get(number) or _state.everybody())
        if (ranks := sets.get(number)) and ranks not in _state.ids:
            _state.ids = {**_state.ids, ranks: added}
        elif not ranks:
            _remove_from_core(added)  # it has only used up the number


def _moved(ranks: _Ranks, members: tuple[int, ...]) -> _Ranks:
    """Return the new ranks of the last world's `ranks`, in a world of these members."""
    rank_of = {number: rank for rank, number in enumerate(members)}
    before = [_state.members[rank] for rank in ranks if rank < len(_state.members)]
    return tuple(rank_of[number] for number in before if number in rank_of)


def _begin(rank: int, members: tuple[int, ...], comm: Communicator | None) -> None:
    _state.place = rank, len(members)
    _state.members = members
    _state.comm = comm
    _state.ids, _state.own, _state.interrupted = {_state.everybody(): 0}, {}, {}


def leave() -> None:
    """Record that the world is gone."""
    _state.place = 0, 0
    _state.comm = None
    _state.ids, _state.own, _state.interrupted = {}, {}, {}


def _register(ranks: _Ranks) -> None:
    number = _add_to_core(ranks)
    _state.ids = {**_state.ids, ranks: number}
    _state.numbered[number] = ranks


def begin_change(kind: Kind, ranks: Sequence[int], name: str) -> Handle[None]:
    """Change the core's table. Collective over all ranks, or, with a name, over the members of the set."""
    return core.submit(kind, [], None, (name, 0, 0, 1.0, 1.0, 0), ranks=ranks)


def await_added(handle: Handle[None]) -> int:
    """Wait for a new set. Returns its number."""
    handle.wait()
    (number,) = struct.unpack("q", memoryview(handle.outputs()[0]))
    return int(number)


def _add_to_core(ranks: _Ranks) -> int:
    await_earlier()
    return await_added(begin_change(Kind.ADD_PROCESS_SET, ranks, ""))


def _remove_from_core(number: int) -> None:
    await_earlier()
    begin_change(Kind.REMOVE_PROCESS_SET, [number], "").wait()


def _need_world() -> None:
    if not _state.place[1]:
        raise not_initialized()


def _unknown(process_set: ProcessSet) -> ArgumentError:
    return ArgumentError(f"{process_set} is not known in this world; call add_process_set with it on every rank first")


def _present(ranks: _Ranks, present: dict[_Ranks, int]) -> ArgumentError:
    return ArgumentError(f"process set {present[ranks]} has the ranks {list(ranks)} already; use that one")


def _check_fits(ranks: _Ranks, size: int) -> None:
    if ranks[-1] >= size:
        raise ArgumentError(
            f"a process set cannot have rank {ranks[-1]}: this world has the ranks 0 to {size - 1} only"
        )
