"""Joins and leaves worlds, with `init` and `shutdown`, and tells the rank and the size."""

from __future__ import annotations

import atexit
import functools
import hmac
import threading
from collections.abc import Callable
from dataclasses import replace

from farandole._api import errors, process_sets
from farandole._api.errors import not_initialized
from farandole._api.process_sets import ProcessSets
from farandole._runtime import clock, recording
from farandole._runtime.diagnosis import thread as diagnosis
from farandole._runtime.native import core
from farandole._start import bootstrap, communicators, ending, environment, flight_files, key_exchange


class _State:
    """What this process knows about its world; written under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.world: environment.World | None = None  # while initialized
        self.given: environment.World | None = None  # its place, if the program has told it instead of a launcher
        self.homogeneous = True
        self.number = 0  # this process's rank at the start of the job, which no other process gets later
        self.clock_offset_ns: int | None = None  # by which this host's clock is ahead of that of the job's first rank 0
        self.store = ""  # where the ranks of this or the last world met
        self.met: tuple[str, bytes] | None = None  # store and key on one host, kept for a later init()
        self.job_key = b""  # kept after shutdown()
        self.epoch = 0  # the number of the world in an elastic job
        self.flight_file: flight_files.FlightFile | None = None  # of this or the last world
        self.worlds = 0  # that this process has been in
        self.ended_joins = 0  # joins that have ended in all these worlds
        self.launcher = ""  # that started this process
        self.leaves_at_exit = False
        self.address = ""  # where ranks of other hosts reach this one; "" on one host


_state = _State()


def init(comm: communicators.Communicator | None = None, process_sets: ProcessSets | None = None) -> None:
    """Join the world that this process was started in. A process that was started alone is a world of one rank.

    Blocks until all ranks have called it; Ctrl-C interrupts. Does nothing if already initialized, and may be called
    again after `shutdown()`. The interpreter calls `shutdown()` when it exits.

    Args:
        comm: communicator of mpi4py, whose ranks form the world, in its order; collective there. None means all ranks
            that the launcher started.
        process_sets: process sets to add at once, the same on all ranks, as if by `add_process_set`. Sets that were
            added to an earlier world of this process exist again, before these. More can be added at any time, so
            Horovod's "dynamic" is accepted and not needed.

    Raises:
        ValueError: the launcher's variables contradict each other, or belong to a launcher that Farandole does not
            support (the message names them); `comm` is not a communicator; a process set has ranks that the world
            lacks; process sets are given when already initialized; or the file of FARANDOLE_TIMELINE cannot be made.
        DeadlineError: a rank did not come in time.

    Example:
        >>> hvd.init()
        >>> hvd.is_initialized()
        True
    """
    with _state.lock:
        if _state.world is not None:
            if process_sets and process_sets != "dynamic":
                raise ValueError("farandole is initialized already: call add_process_set with each of the process sets")
            return
        from farandole._start import log  # imports logging, which `import farandole` avoids

        log.configure()
        communicator = _checked_communicator(comm)
        if communicator:
            _enter(None, process_sets, communicator)
            return
        found = _state.given or environment.discover()
        if found.joins >= 0:
            _wait_outside(found)
            return
        if doubt := environment.doubt(found):
            log.logger.warning(doubt)
        _enter(found, process_sets)


def init_as(rank: int, size: int, make_exchange: bootstrap.MakeExchange) -> None:
    """Join the world like `init`, in a process that a program has started itself and told its place.

    Does nothing if already initialized. The variables of a launcher take precedence. A later `init()` uses the same
    place.

    Args:
        rank: rank of this process.
        size: number of ranks.
        make_exchange: makes the exchange by which the ranks find each other if there is no launcher, now and in a
            later `init()`.

    Raises: like `init`.
    """
    with _state.lock:
        if _state.world is None:
            bootstrap.register_exchange(environment.GIVEN, make_exchange)

            def job() -> str:
                return bootstrap.job_on_one_host(make_exchange(rank, size, environment.start_timeout_s()))

            found = environment.discover_or_given(rank, size, job)
            _state.given = found if found.launcher == environment.GIVEN else None
            if _state.given is not None:
                _state.met = None  # an earlier world may have had other ranks
            _enter(found, None)


def _enter(
    found: environment.World | None, wanted_sets: object, comm: communicators.Communicator | None = None
) -> None:
    """Enter the world that was found, or that of `comm`. REQUIRES the lock."""
    sets = process_sets.requested(wanted_sets, comm.Get_size() if comm else found.size if found else 1, comm)
    if found is not None:
        ending.before_init(found, shutdown)
    rendezvous = _rendezvous(found, comm)
    world = rendezvous.world
    if _state.epoch == 0 or comm:
        _state.job_key, _state.epoch, _state.number = rendezvous.key, 0, world.rank
    _state.launcher = world.launcher
    _state.address = rendezvous.address or environment.address()
    environment.find_libraries()
    if not _state.leaves_at_exit:
        atexit.register(_leave_at_exit)
        _state.leaves_at_exit = True
    add_process_sets = functools.partial(process_sets.enter, world.rank, world.size, sets, comm)
    _join(rendezvous, ending.look_for_the_ended, add_process_sets, _record_from_init)


def _record_from_init(track: recording.Track) -> None:
    if path := environment.timeline():
        recording.begin_at_init(path, environment.marks_cycles(), track)


def _wait_outside(found: environment.World) -> None:
    """Prepare to join a running job at `elastic.run`, so that nobody waits for this process until then."""
    ending.before_init(found, shutdown)
    _state.launcher, _state.address, _state.number = found.launcher, environment.address(), found.joins
    _state.job_key = key_exchange.read_key(found.key_file)
    environment.find_libraries()
    atexit.register(_leave_at_exit)
    _state.leaves_at_exit = True
    errors.explain_absence(
        f"rank {found.joins} of the launcher joins a running job and has no collectives until elastic.run: make such "
        "calls inside its function, or leave them to the state's sync"
    )
    process_sets.wait_outside(found.rank, found.size)
    if path := environment.timeline():
        recording.begin_later(path, environment.marks_cycles())
    _state.world = found


def _join(
    rendezvous: bootstrap.Rendezvous,
    look: Callable[[], None],
    add_process_sets: Callable[[], None],
    record: Callable[[recording.Track], None],
) -> None:
    """Connect to the other ranks, and make the world ready for the program. REQUIRES the lock."""
    world, _state.store = rendezvous.world, rendezvous.store
    place = world.rank, world.size, rendezvous.store, rendezvous.key, rendezvous.address, rendezvous.listener
    file = flight_files.prepare(world.size, _state.job_key or rendezvous.key, _state.epoch)
    core.init(*place, look, _state.epoch, file.path, file.run)
    _state.flight_file = file
    errors.explain_absence("")
    ending.after_init()
    environment.tell_horovods_readers(world)
    try:
        if world.size > 1:
            diagnosis.start(world.rank)
        _state.homogeneous = _hosts_are_equal(world)
        _state.clock_offset_ns = _measured_clock_offset_ns(world)
        add_process_sets()
        record(_track(world))
    except BaseException:
        _leave()
        raise
    _state.world = world
    _state.worlds += 1


def enter_epoch(
    rendezvous: bootstrap.Rendezvous,
    members: tuple[int, ...],
    number: int,
    look: Callable[[], None],
    exchange: process_sets.Exchange,
) -> None:
    """Join the world of an elastic job's next epoch, after the last one has been left.

    A later `init()` of this process joins the same world. Process sets and timelines continue.

    Args:
        rendezvous: this process's rank in that world, and how it connects to the others.
        members: member numbers of the ranks, which are their ranks at the start.
        number: number of the epoch.
        look: called about ten times a second while this process waits for the others; an error it raises ends the wait.
        exchange: returns what all ranks of the new world say, by rank.

    Raises: like `init`, if another member is lost meanwhile.
    """
    with _state.lock:
        _state.given, _state.met = replace(rendezvous.world, store=rendezvous.store), (rendezvous.store, rendezvous.key)
        _state.job_key, _state.epoch = job_key(), number
        ending.enter_epoch(members, number)
        add_process_sets = functools.partial(process_sets.enter_epoch, rendezvous.world.rank, members, exchange)
        _join(rendezvous, look, add_process_sets, recording.enter_epoch)


def joins() -> int:
    """Return the member number of a process that will join a running job, or -1. Raises NotInitializedError."""
    return _current().joins


def job_key() -> bytes:
    """Return the job's key; b"" in a job that began with one rank and cannot get others."""
    if _state.job_key or not environment.membership():
        return _state.job_key
    path = environment.key_file(environment.OURS)  # of a launcher that also gives it to newcomers
    return key_exchange.read_key(path) if path else b""


def connection_key(purpose: str) -> bytes:
    """Return a key that this job's ranks share for connections of this purpose; see `connect`."""
    return hmac.digest(job_key(), b"farandole connections\0" + purpose.encode(), "sha256")


def launcher() -> str:
    """Return the title of the launcher that started this process, or ""."""
    _current()
    return _state.launcher


def shutdown() -> None:
    """Leave the world. Operations in flight complete or fail, and all resources are released.

    Does nothing if not initialized. Every rank should call it. `init()` may follow.

    Example:
        >>> hvd.shutdown()
        >>> hvd.is_initialized()
        False
        >>> hvd.init()
    """
    with _state.lock:
        if _state.world is None:
            return
        _state.world = None
        _leave()
        recording.end()


def leave_epoch() -> None:
    """Shut down before the next epoch of an elastic job, in which the timeline continues."""
    with _state.lock:
        if _state.world is not None:
            _state.world = None
            _leave()


def is_initialized() -> bool:
    """Return whether `init()` was called and `shutdown()` was not called since.

    Example:
        >>> hvd.is_initialized()
        True
    """
    return _state.world is not None


def rank() -> int:
    """Return this process's rank in the world, 0 <= rank < size. Raises NotInitializedError.

    Example:
        >>> hvd.rank() in (0, 1)
        True
    """
    return _current().rank


def size() -> int:
    """Return the number of ranks in the world. Raises NotInitializedError.

    Example:
        >>> hvd.size()
        2
    """
    return _current().size


def local_rank() -> int:
    """Return this process's rank among those of its host, by which it chooses a GPU. Raises NotInitializedError.

    Example:
        >>> hvd.local_rank() == hvd.rank()  # both are on one host
        True
    """
    return _current().local_rank


def local_size() -> int:
    """Return the number of ranks on this host. Raises NotInitializedError.

    Example:
        >>> hvd.local_size()
        2
    """
    return _current().local_size


def cross_rank() -> int:
    """Return this host's number among the hosts that have this local rank. Raises NotInitializedError.

    Example:
        >>> hvd.cross_rank()
        0
    """
    return _current().cross_rank


def cross_size() -> int:
    """Return the number of hosts that have this local rank. Raises NotInitializedError.

    Example:
        >>> hvd.cross_size()
        1
    """
    return _current().cross_size


def is_homogeneous() -> bool:
    """Return whether every host has the same number of ranks. Raises NotInitializedError.

    Example:
        >>> hvd.is_homogeneous()
        True
    """
    _current()
    return _state.homogeneous


def track() -> recording.Track:
    """Return the facts about this process that a timeline needs. Raises NotInitializedError."""
    return _track(_current())


def _track(world: environment.World) -> recording.Track:
    is_alone = world.size == 1 and _state.epoch == 0 and not environment.membership()
    key = job_key()
    run = hmac.new(key, b"timeline", "sha256").hexdigest()[:8] if key else ""
    offset_ns = _state.clock_offset_ns or 0
    return recording.Track(_state.number, world, _state.epoch, 1 if is_alone else max(2, world.size), run, offset_ns)


def world_number() -> int:
    """Return the number of worlds that this process has been in, including this one."""
    return _state.worlds


def note_join() -> None:
    """Note that a join of all ranks has ended."""
    _state.ended_joins += 1


def join_count() -> int:
    """Return how many joins have ended. Before each, ranks may have made different numbers of calls."""
    return _state.ended_joins


def own_address() -> str:
    """Return the address at which ranks of other hosts reach this one, or "". Raises NotInitializedError."""
    world = _current()
    return "" if world.local_size == world.size else _state.address


def _current() -> environment.World:
    if _state.world is None:
        raise not_initialized()
    return _state.world


def _leave_at_exit() -> None:
    ending.at_exit()
    shutdown()
    recording.end()  # also if no world follows the ended epoch


def _leave() -> None:
    ending.before_shutdown()
    process_sets.leave()
    core.shutdown()
    diagnosis.stop()
    if _state.flight_file is not None:
        flight_files.remove_if_all_have_left(_state.flight_file)


def _measured_clock_offset_ns(world: environment.World) -> int:
    """Return the nanoseconds by which this host's clock is ahead of that of the job's first rank 0. Collective."""
    measured = clock.measure_offset_ns() if world.local_size < world.size else 0
    if _state.epoch == 0:
        return measured
    known = _state.clock_offset_ns
    of_rank_0 = clock.allgather([known or 0], "farandole.clock.of_rank_0")[0]  # rank 0 was in the epoch before
    return measured + of_rank_0 if known is None else known


def _checked_communicator(comm: object) -> communicators.Communicator | None:
    if comm is None or comm == []:
        return None
    if (found := communicators.communicator(comm)) is None:
        raise ValueError(
            f"init(comm=...) takes an MPI communicator, such as mpi4py's MPI.COMM_WORLD, not {comm!r}; for some of the "
            "ranks only, use process sets"
        )
    return found


def _rendezvous(world: environment.World | None, comm: communicators.Communicator | None) -> bootstrap.Rendezvous:
    """Return the endpoint at which the ranks of `comm` or of the launcher's world meet, and the key."""
    timeout_s = environment.start_timeout_s()
    if comm:
        key_file, exchange = environment.key_file("MPI"), communicators.exchange_of(comm, timeout_s)
        return bootstrap.exchange_addresses(comm.Get_rank(), comm.Get_size(), "MPI", key_file, exchange)
    assert world is not None
    if world.size == 1:
        return bootstrap.Rendezvous(world)
    if not world.store:
        place = world.rank, world.size, world.launcher
        return bootstrap.exchange_addresses(*place, world.key_file, bootstrap.through_launcher(*place, timeout_s))
    if _state.met is None:
        if world.key_file:
            _state.met = world.store, key_exchange.read_key(world.key_file)
        else:
            _state.met = key_exchange.exchange(world.store, world.rank, world.size, timeout_s)
    return bootstrap.Rendezvous(world, *_state.met)


def _hosts_are_equal(world: environment.World) -> bool:
    """Return whether all hosts have the same number of ranks. Collective if there are several hosts."""
    if world.local_size == world.size:
        return True
    return len(set(clock.allgather([world.local_size], "farandole.local_size"))) == 1
