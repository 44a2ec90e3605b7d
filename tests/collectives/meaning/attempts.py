"""A rank with bad input: makes the call, and reports the error that it got. It judges nothing."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import badinput
import farandole
import farandole.numpy as fnp
import misuses
import numpy as np
from badinput import Mismatch
from living import Settings, settle

QUICK = {"FARANDOLE_TIMEOUT": "10"}  # a hang becomes a DeadlineError, which nobody expects


@contextlib.contextmanager
def standard_error() -> Iterator[list[str]]:
    """Captures what this process writes to the stream within the block, as one text in the list."""
    written: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield written
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            written.append(file.read().decode())


class Told(NamedTuple):
    """The end of one attempt on one rank."""

    error: str  # name of the exception's class, "" for none
    kinds: tuple[str, ...]  # with its bases
    text: str
    seconds: float
    goes_on: bool  # whether an allreduce afterwards was right

    @property
    def without_places(self) -> str:
        """The text less " (train.py:12)" behind each rank."""
        return re.sub(r" \([^()\s]+\.py:\d+\)", "", self.text)


def attempt(call: Callable[[], object]) -> Told:
    """Make the call, and then one that all ranks make alike."""
    began = time.monotonic()
    error: BaseException | None = None
    try:
        call()
    except Exception as raised:
        error = raised
    seconds = time.monotonic() - began
    kinds = tuple(kind.__name__ for kind in type(error).__mro__) if error is not None else ()
    return Told(kinds[0] if kinds else "", kinds, str(error or ""), seconds, goes_on())


def goes_on() -> bool:
    try:
        return bool((fnp.allreduce(np.ones(9), op=fnp.Sum) == fnp.size()).all())
    except farandole.FarandoleError:
        farandole.shutdown()
        farandole.init()
        return False


def together(settings: list[Settings]) -> None:
    settle([{**each, **QUICK} for each in settings])


def disagree(settings: list[Settings]) -> list[Told]:
    """Every mismatch in turn."""
    together(settings)
    return [attempt(lambda case=case: clash(case)) for case in badinput.mismatches(range(fnp.size()))]


def clash(case: Mismatch, process_set: Any = None) -> None:
    """Call what does not fit, then the same name once more, rightly."""
    try:
        case.call(fnp.rank()).perform(fnp, case.name, case.blocking, process_set)
    except farandole.MismatchError:
        case.difference.left.perform(fnp, case.name, case.blocking, process_set)
        raise


def misuse(settings: list[Settings]) -> list[Told]:
    """Every misuse in turn, on all ranks. What one rank misuses alone fails on the others too: test_refusals.py."""
    together(settings)
    return [attempt(lambda case=case: case.perform(fnp)) for case in misuses.MISUSES]


def odd_but_right(settings: list[Settings]) -> list[str]:
    """The labels of what does not work."""
    together(settings)
    wrong = []
    for label, call, right in misuses.ODD_BUT_RIGHT:
        try:
            np.testing.assert_array_equal(call(fnp), right(fnp.size()), strict=True)
        except Exception as error:
            wrong.append(f"{label}: {type(error).__name__} {error}")
    return wrong


# ---- orders, absence, life


def orders_cross(settings: list[Settings]) -> list[Told]:
    """Unnamed and blocking in another order; named and asynchronous in another order, which is right."""
    together(settings)
    first, odd = fnp.rank() == 0, fnp.rank() != 0

    def unnamed() -> None:
        calls: list[Callable[[], Any]] = [lambda: fnp.allreduce(np.ones(3)), lambda: fnp.allgather(np.ones(5))]
        told = [attempt_alone(call) for call in (calls if first else calls[::-1])]
        raise ValueError(f"{[each[0] for each in told]} {told[0][1]}")

    def named() -> None:
        names = ["a", "b", "c", "d"][:: -1 if odd else 1]
        for handle in [fnp.allreduce_async(np.ones(3), name=name) for name in names]:
            fnp.synchronize(handle)

    return [attempt(unnamed), attempt(named)]


def attempt_alone(call: Callable[[], Any]) -> tuple[str, str]:
    try:
        call()
    except (farandole.FarandoleError, ValueError) as error:
        return type(error).__name__, str(error)
    return "", ""


def twice_in_flight(settings: list[Settings]) -> list[Told]:
    """Rank 0 starts a name twice before anybody else has started it."""
    together(settings)
    found = []
    for kind in ("allreduce", "allgather", "grouped_allreduce", "broadcast"):
        array: Any = [np.ones(2)] if kind.startswith("grouped") else np.ones(2)
        words = {"root_rank": 0} if kind == "broadcast" else {}

        def start(kind: str = kind, array: Any = array, words: dict[str, int] = words) -> Any:
            return getattr(fnp, f"{kind}_async")(array, name="twice", **words)

        def twice(start: Callable[[], Any] = start) -> None:
            handle = start() if fnp.rank() == 0 else None
            try:
                if fnp.rank() == 0:
                    start()
            finally:
                fnp.broadcast_object(None, 0)  # the others start only now
                fnp.synchronize(handle or start())

        found.append(attempt(twice))
    return found


NAMELESS = ("barrier", "unnamed", "add_process_set", "join")
ABSENT = (  # join may wait for long: others have more data
    *("allreduce", "allreduce_async", "allgather", "broadcast", "grouped_allreduce", "alltoall", "reducescatter"),
    *NAMELESS[:-1],
)
LEFT = (*ABSENT, "join")
# Between the warning and the deadline rank 0 answers who is missing, however busy the machine is.
QUICKEST = {"FARANDOLE_TIMEOUT": "1.2", "FARANDOLE_WARN_AFTER": "0.1"}


def one_never_calls(settings: list[Settings], kind: str, leaves: bool) -> tuple[Told, str]:
    """The last rank does not come; with `leaves` it shuts down instead. Also what was printed meanwhile."""
    settle([{**each, **QUICKEST} for each in settings])
    fnp.barrier()
    absent = fnp.rank() == fnp.size() - 1
    began = time.monotonic()
    name, text = "", ""
    with standard_error() as printed:
        try:
            if absent:
                if leaves:
                    farandole.shutdown()
                time.sleep(1.8)
            else:
                perform_waiting(kind)
        except farandole.FarandoleError as error:
            name, text = type(error).__name__, str(error)
    seconds = time.monotonic() - began
    farandole.shutdown()
    farandole.init()
    return Told(name, (), text, seconds, goes_on()), printed[0]


def perform_waiting(kind: str) -> None:
    array = np.ones(7)
    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: fnp.allreduce(array, name="awaited"),
        "allreduce_async": lambda: fnp.synchronize(fnp.allreduce_async(array, name="awaited")),
        "allgather": lambda: fnp.allgather(array, name="awaited"),
        "broadcast": lambda: fnp.broadcast(array, fnp.size() - 1, name="awaited"),
        "grouped_allreduce": lambda: fnp.grouped_allreduce([array, array], name="awaited"),
        "alltoall": lambda: fnp.alltoall(array, [7] + [0] * (fnp.size() - 1), name="awaited"),
        "reducescatter": lambda: fnp.reducescatter(array, name="awaited"),
        "join": fnp.join,
        "add_process_set": lambda: fnp.add_process_set([0]),
        "barrier": fnp.barrier,
        "unnamed": lambda: fnp.allreduce(array),
    }
    calls[kind]()


REFUSALS = ("ArgumentError", "ValueError")
BAD_SETTINGS = (
    ("FARANDOLE_ARENAS", "2"),
    ("FARANDOLE_ORDER", "random"),
    ("FARANDOLE_ALGORITHM", "bubble"),
    ("FARANDOLE_LOG_LEVEL", "loud"),
    ("FARANDOLE_FUSION_THRESHOLD", "64MB"),
    ("FARANDOLE_FUSION_THRESHOLD", "-1"),
    ("FARANDOLE_TIMEOUT", "soon"),
    ("FARANDOLE_TIMEOUT", "1e300"),
    ("FARANDOLE_WARN_AFTER", "-3"),
    ("FARANDOLE_START_TIMEOUT", "nan"),
    ("FARANDOLE_SILENCE_TIMEOUT", "0"),
)


def bad_settings(settings: list[Settings]) -> list[str]:
    """The error of init() about each; then init() works without them."""
    together(settings)
    wrong = []
    for name, value in BAD_SETTINGS:
        farandole.shutdown()
        before = os.environ.get(name)
        os.environ[name] = value
        told = attempt_alone(farandole.init)
        if told[0] not in REFUSALS or name not in told[1] or value not in told[1]:
            wrong.append(f"{name}={value}: {told}")
        os.environ.pop(name)
        os.environ.update({name: before} if before is not None else {})
        farandole.init()
    farandole.shutdown()
    sets: Any
    for sets in (5, [3], ["world"], [fnp.ProcessSet([len(settings)])]):
        told = attempt_alone(lambda sets=sets: farandole.init(process_sets=sets))
        if told[0] not in REFUSALS or "process set" not in told[1].replace("_", " "):
            wrong.append(f"process_sets={sets}: {told}")
    farandole.init()
    return wrong + ([] if goes_on() else ["it does not go on"])


def after_shutdown(settings: list[Settings]) -> list[str]:
    """The error of each call between shutdown and init; and init twice does no harm."""
    together(settings)
    complete = fnp.allreduce_async(np.ones(3), op=fnp.Sum)
    while not fnp.poll(complete):
        time.sleep(0.001)
    fnp.barrier()
    time.sleep(0.1)  # until the barrier is complete everywhere: who leaves with something in flight breaks the world
    pending = None
    with contextlib.suppress(farandole.PeerLostError):  # somebody has left already
        pending = fnp.allreduce_async(np.ones(3), op=fnp.Sum)
    farandole.shutdown()
    farandole.shutdown()
    array = np.ones(3)
    calls: list[Callable[[], object]] = [
        lambda: fnp.allreduce(array),
        lambda: fnp.allreduce_(array),
        lambda: fnp.allreduce_async(array),
        lambda: fnp.grouped_allreduce([array]),
        lambda: fnp.allgather(array),
        lambda: fnp.broadcast(array, 0),
        lambda: fnp.broadcast_parameters({"a": array}),
        lambda: fnp.broadcast_object(1),
        lambda: fnp.allgather_object(1),
        lambda: fnp.alltoall(array),
        lambda: fnp.alltoall(array, [1, 2]),
        lambda: fnp.reducescatter(array),
        lambda: fnp.sparse_allreduce((array, array)),
        lambda: fnp.add_process_set([0]),
        *(
            fnp.join,
            fnp.get_process_set_ids_and_ranks,
            fnp.barrier,
            fnp.rank,
            fnp.size,
            fnp.local_rank,
            fnp.local_size,
            fnp.cross_rank,
            fnp.cross_size,
        ),
        fnp.is_homogeneous,
    ]
    told = [attempt_alone(call) for call in calls]
    wrong = [f"{number}: {each}" for number, each in enumerate(told) if each[0] != "NotInitializedError"]
    wrong += [f"{number}: {each}" for number, each in enumerate(told) if "init()" not in each[1]]
    size = int(os.environ["FARANDOLE_SIZE"])
    if fnp.synchronize(complete).tolist() != [size] * 3:
        wrong.append("a complete operation lost its result")
    ending = attempt_alone(lambda: pending and fnp.synchronize(pending))  # completed or failed, but not waited for
    if ending[0] not in ("", "PeerLostError", "NotInitializedError"):
        wrong.append(f"in flight: {ending}")
    farandole.init()
    farandole.init()
    return wrong + ([] if goes_on() else ["it does not go on"])


def in_forked_child(settings: list[Settings]) -> list[str]:
    """The error of each call in a forked child, while the rank itself goes on."""
    together(settings)
    array = np.ones(3)
    handle = fnp.allreduce_async(array, name="before the fork", op=fnp.Sum)
    calls: list[Callable[[], object]] = [
        lambda: fnp.allreduce(array),
        lambda: fnp.allreduce_async(array, name="in the child"),
        lambda: fnp.allgather(array),
        lambda: fnp.broadcast_(array, 0),
        fnp.barrier,
        lambda: fnp.broadcast_object(1),
        lambda: fnp.alltoall(np.ones(fnp.size())),
        lambda: fnp.reducescatter(array),
        lambda: fnp.add_process_set([0]),
        fnp.join,
        lambda: (farandole.shutdown(), farandole.init()),
    ]
    first = fnp.rank() == 0
    if first:
        unfinished = fnp.allreduce_async(array, name="unfinished at the fork", op=fnp.Sum)
    if first and fnp.size() > 1:  # the others come to it after the fork
        calls.append(lambda: fnp.synchronize(unfinished))

    def wrongly_told() -> list[tuple[str, str]]:
        told = [attempt_alone(call) for call in calls]
        return [each for each in told if each[0] != "NotInitializedError" or "fork" not in each[1]]

    answer = _from_a_fork(wrongly_told)
    found = [] if answer == "[]" else [f"in the child: {answer}"]
    fnp.synchronize(unfinished if first else fnp.allreduce_async(array, name="unfinished at the fork", op=fnp.Sum))
    if fnp.synchronize(handle).tolist() != [fnp.size()] * 3:
        found.append("the rank's own operation is wrong")
    return found


def what_a_forked_child_keeps_open(settings: list[Settings]) -> list[str]:
    """Descriptors of a forked child that this process has only while it is in a world."""
    together(settings)
    farandole.barrier()
    farandole.shutdown()
    without = _descriptors()
    farandole.init()
    fnp.allreduce(np.ones(3), name="before the fork")
    ours = sorted(set(_descriptors()) - set(without))
    answer = _from_a_fork(lambda: {each: place for each, place in _descriptors().items() if each in ours})
    found = [] if answer == "{}" else [f"in the child: {answer}"]
    return found + ([] if len(ours) > 2 or fnp.size() == 1 else [f"in the rank: {ours}"])


def _from_a_fork(function: Callable[[], object]) -> str:
    """The result of the function in a forked child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(function()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


def _descriptors() -> dict[int, str]:
    """The open descriptors, but for that of the folder that is listed."""
    places = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            places[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return places
