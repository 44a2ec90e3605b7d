"""The life of a world: init, shutdown, and who is in it."""

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
    """This process's knowledge of its world; written under `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.world: environment.World | None = None  # while initialized
        self.given: environment.World | None = None  # its place, where no launcher says so
        self.homogeneous = True
        self.number = 0  # of this process: its rank at the start of the job, which no other process gets later
        self.clock_offset_ns: int | None = None  # this host's clock ahead of that of the job's first rank 0
        self.store = ""  # where the ranks of this world, or of the last one, met
        self.met: tuple[str, bytes] | None = None  # store and key on one host, obtained once: a later init() has them
        self.job_key = b""  # the secret of this job's ranks, also after shutdown()
        self.epoch = 0  # of an elastic job: the number of its world
        self.flight_file: flight_files.FlightFile | None = None  # of this world, or of the last one
        self.worlds = 0  # how many this process has been in
        self.ended_joins = 0  # in all of them
        self.launcher = ""  # that started this process
        self.leaves_at_exit = False
        self.address = ""  # where ranks of other hosts reach this one, if there are any


_state = _State()


def init(comm: communicators.Communicator | None = None, process_sets: ProcessSets | None = None) -> None:
    """Join the world that this process was started in; a process started alone is a world of one.

    Blocks until all ranks called it; Ctrl-C interrupts. Does nothing when already initialized, and may be called again
    after `shutdown()`. `shutdown()` is called at interpreter exit.

    Args:
        comm: an MPI communicator of mpi4py, whose ranks are the world then, in its order; collective there. None: the
            whole world that the launcher started.
        process_sets: those that the world starts with, the same on all ranks, as if `add_process_set` were called
            for each. Those that were added to an earlier world of this process are there again, before these. More can
            be added at any time; Horovod's "dynamic", which asks for that, is accepted.

    Raises:
        ValueError: the launcher's variables contradict each other or are those of one that Farandole does not read (the
            message names them), `comm` is no such
            communicator, a process set has ranks that the world has not, process sets are given when already
            initialized, or the file of FARANDOLE_TIMELINE cannot be made.
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
        from farandole._start import log  # with logging, which `import farandole` does without

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
    """`init` for a process that a program has started itself, and told its place; a later `init()` has it, too.

    Does nothing when already initialized. Where a launcher's variables are there, they are believed.

    Args:
        rank: this process's number.
        size: how many there are.
        make_exchange: of what the ranks find each other by, where no launcher is found; also of a later `init()`.

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
                _state.met = None  # the ranks of an earlier world may be others
            _enter(found, None)


def _enter(
    found: environment.World | None, wanted_sets: object, comm: communicators.Communicator | None = None
) -> None:
    """Into the world that was found, or that of `comm`. REQUIRES the lock."""
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
    """This process joins a running job at `elastic.run`, so that nobody waits for what it does before."""
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
    """Meet the other ranks, and make the world ready for the program. REQUIRES the lock."""
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
    """Join the world of an elastic job's next epoch, in place of the one that `shutdown` has left.

    A later `init()` of this process joins it, too. Process sets and timelines go on.

    Args:
        rendezvous: this process's rank there, and how it meets the others.
        members: the numbers of the processes that are its ranks: those that they had at the start.
        number: of the epoch.
        look: called about ten times a second while this process waits for the others; an error of its ends the wait.
        exchange: returns what all ranks of the new world say, in their order.

    Raises: like `init`, where another member is lost meanwhile.
    """
    with _state.lock:
        _state.given, _state.met = replace(rendezvous.world, store=rendezvous.store), (rendezvous.store, rendezvous.key)
        _state.job_key, _state.epoch = job_key(), number
        ending.enter_epoch(members, number)
        add_process_sets = functools.partial(process_sets.enter_epoch, rendezvous.world.rank, members, exchange)
        _join(rendezvous, look, add_process_sets, recording.enter_epoch)


def joins() -> int:
    """The number of this process in a running job that it is to join; -1 for others. Raises NotInitializedError."""
    return _current().joins


def job_key() -> bytes:
    """The secret of this job's ranks; b"" in a job that began with one rank and can get no others."""
    if _state.job_key or not environment.membership():
        return _state.job_key
    path = environment.key_file(environment.OURS)  # of a launcher whose newcomers know it, too
    return key_exchange.read_key(path) if path else b""


def connection_key(purpose: str) -> bytes:
    """A secret of this job's ranks for connections of this purpose, see `connect`; other purposes have other ones."""
    return hmac.digest(job_key(), b"farandole connections\0" + purpose.encode(), "sha256")


def launcher() -> str:
    """The title of the launcher that started this process; "" for none."""
    _current()
    return _state.launcher


def shutdown() -> None:
    """Leave the world: operations in flight are completed or failed, everything is released.

    Does nothing when not initialized. Every rank should call it; `init()` may follow.

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
    """`shutdown` before the next epoch of an elastic job, in which the timeline goes on."""
    with _state.lock:
        if _state.world is not None:
            _state.world = None
            _leave()


def is_initialized() -> bool:
    """Returns whether `init()` was called and `shutdown()` was not called since.

    Example:
        >>> hvd.is_initialized()
        True
    """
    return _state.world is not None


def rank() -> int:
    """This process's number in the world, 0 <= rank < size. Raises NotInitializedError.

    Example:
        >>> hvd.rank() in (0, 1)
        True
    """
    return _current().rank


def size() -> int:
    """Number of processes in the world. Raises NotInitializedError.

    Example:
        >>> hvd.size()
        2
    """
    return _current().size


def local_rank() -> int:
    """This process's number among those of its host, the one to choose a GPU by. Raises NotInitializedError.

    Example:
        >>> hvd.local_rank() == hvd.rank()  # both are on one host
        True
    """
    return _current().local_rank


def local_size() -> int:
    """Number of processes on this host. Raises NotInitializedError.

    Example:
        >>> hvd.local_size()
        2
    """
    return _current().local_size


def cross_rank() -> int:
    """This host's number among the hosts that have a process of this local rank. Raises NotInitializedError.

    Example:
        >>> hvd.cross_rank()
        0
    """
    return _current().cross_rank


def cross_size() -> int:
    """Number of hosts that have a process of this local rank. Raises NotInitializedError.

    Example:
        >>> hvd.cross_size()
        1
    """
    return _current().cross_size


def is_homogeneous() -> bool:
    """Returns whether every host runs the same number of processes. Raises NotInitializedError.

    Example:
        >>> hvd.is_homogeneous()
        True
    """
    _current()
    return _state.homogeneous


def track() -> recording.Track:
    """The facts about this process that a timeline needs. Raises NotInitializedError."""
    return _track(_current())


def _track(world: environment.World) -> recording.Track:
    is_alone = world.size == 1 and _state.epoch == 0 and not environment.membership()
    key = job_key()
    run = hmac.new(key, b"timeline", "sha256").hexdigest()[:8] if key else ""
    offset_ns = _state.clock_offset_ns or 0
    return recording.Track(_state.number, world, _state.epoch, 1 if is_alone else max(2, world.size), run, offset_ns)


def world_number() -> int:
    """The number of worlds that this process has been in, including this one."""
    return _state.worlds


def note_join() -> None:
    """A join of all ranks has ended."""
    _state.ended_joins += 1


def join_count() -> int:
    """How many joins have ended: before each, ranks may have made different numbers of calls."""
    return _state.ended_joins


def own_address() -> str:
    """The address at which ranks of other hosts reach this one; "" where there are none. Raises NotInitializedError."""
    world = _current()
    return "" if world.local_size == world.size else _state.address


def _current() -> environment.World:
    if _state.world is None:
        raise not_initialized()
    return _state.world


def _leave_at_exit() -> None:
    ending.at_exit()
    shutdown()
    recording.end()  # also where no world follows an epoch that has ended


def _leave() -> None:
    ending.before_shutdown()
    process_sets.leave()
    core.shutdown()
    diagnosis.stop()
    if _state.flight_file is not None:
        flight_files.remove_if_all_have_left(_state.flight_file)


def _measured_clock_offset_ns(world: environment.World) -> int:
    """Nanoseconds by which this host's clock is ahead of that of the job's first rank 0. Collective."""
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
    """The endpoint at which the ranks of `comm` or of the launcher's world meet, and the key."""
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
    """Collective where there are several hosts: no rank can tell from its own numbers alone (hosts of 1, 2 and 3)."""
    if world.local_size == world.size:
        return True
    return len(set(clock.allgather([world.local_size], "farandole.local_size"))) == 1
