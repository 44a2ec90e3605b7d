"""Communicators of mpi4py: makes a world of their ranks, and finds out which ranks they contain.

This module never imports mpi4py: a program that passes a communicator has done so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

from farandole._api.errors import DeadlineError
from farandole._start.bootstrap import Exchange
from farandole._start.key_exchange import ANSWER_S, Reminder, listed

_TAG = 18002  # of our messages in the program's communicator
_LONGEST_PAUSE_S = 0.02


class Request(Protocol):
    """The part of mpi4py's MPI.Request that is used here."""

    def test(self) -> tuple[bool, Any]: ...


class Message(Protocol):
    """The part of mpi4py's MPI.Message that is used here."""

    def irecv(self) -> Request: ...


class Communicator(Protocol):
    """The part of mpi4py's MPI.Comm that is used here."""

    def Get_rank(self) -> int: ...  # MPI's names
    def Get_size(self) -> int: ...
    def Get_group(self) -> Any: ...
    def Is_inter(self) -> bool: ...
    def isend(self, obj: Any, dest: int, tag: int) -> Request: ...
    def improbe(self, source: int, tag: int) -> Message | None: ...


_USED = ("Get_rank", "Get_size", "Get_group", "Is_inter", "isend", "improbe")


def communicator(thing: object) -> Communicator | None:
    """Return `thing` if it is a communicator, else None. Raises ValueError for one without a group of ranks."""
    if not all(hasattr(thing, name) for name in _USED):
        return None
    if not thing:
        raise ValueError("MPI.COMM_NULL has no ranks; ranks that are not in a communicator leave farandole alone")
    found = cast(Communicator, thing)
    if found.Is_inter():
        raise ValueError("an MPI intercommunicator is two groups of ranks; Merge() makes one of them")
    return found


def exchange_of(comm: Communicator, timeout_s: float) -> Exchange:
    """Return an exchange, which returns the bytes of every rank of `comm`, by rank. Collective in `comm`.

    If a rank has not come `timeout_s` from now, the exchange raises DeadlineError on the others.
    """
    return _Exchange(comm, timeout_s)


def ranks_of(comm: Communicator, world: Communicator | None) -> list[int]:
    """Return the ranks of `comm`, in its order, numbered as in `world` (None: MPI.COMM_WORLD).

    Raises ValueError if one of them is not in `world`.
    """
    if world is None:
        world = cast(Communicator, sys.modules["mpi4py.MPI"].COMM_WORLD)
    group = comm.Get_group()
    ranks = [int(rank) for rank in type(group).Translate_ranks(group, list(range(comm.Get_size())), world.Get_group())]
    if min(ranks) < 0:
        raise ValueError("the MPI communicator has ranks that are not in this world, that of init(comm=...)")
    return ranks


class _Exchange:
    """Lets rank 0 collect the bytes of all ranks and send them to all, or else the list of the missing ranks.

    It uses messages between two ranks, which it polls: collective operations of MPI do not tell which rank is missing,
    and blocking calls of MPI cannot be interrupted.
    """

    def __init__(self, comm: Communicator, timeout_s: float) -> None:
        self._comm = comm
        self._deadline = time.monotonic() + timeout_s
        self._reminder = Reminder()
        self._requests: list[Request] = []

    def __call__(self, mine: bytes) -> list[bytes]:
        try:
            return self._collect(mine) if self._comm.Get_rank() == 0 else self._ask(mine)
        except BaseException:
            _given_up.append(self)
            raise

    def _collect(self, mine: bytes) -> list[bytes]:
        others = range(1, self._comm.Get_size())
        contents = {0: mine}
        receipts = {rank: _Receipt(self._comm, rank, self._requests) for rank in others}

        def is_there() -> bool:
            contents.update(
                (rank, each.content) for rank, each in receipts.items() if rank not in contents and each.is_there()
            )
            return len(contents) > len(others)

        def missing() -> str:
            ranks = listed(set(others) - set(contents))
            return f"rank 0 waits in init() for rank(s) {ranks} of the MPI communicator's {len(others) + 1}"

        try:
            self._wait(is_there, self._deadline, missing)
        except DeadlineError as error:
            with suppress(DeadlineError):
                self._send(str(error), list(contents)[1:], time.monotonic() + ANSWER_S)
            raise
        everything = [contents[rank] for rank in sorted(contents)]
        self._send(everything, others, self._deadline)
        return everything

    def _ask(self, mine: bytes) -> list[bytes]:
        rank = self._comm.Get_rank()
        answer = _Receipt(self._comm, 0, self._requests)
        deadline = self._deadline + ANSWER_S
        self._send(mine, [0], deadline)
        text = f"rank {rank} waits in init() for rank 0 of the MPI communicator, or for those that rank 0 names"
        self._wait(answer.is_there, deadline, lambda: text)
        if isinstance(answer.content, str):
            raise DeadlineError(f"rank {rank} leaves init(): {answer.content}")
        return cast(list[bytes], answer.content)

    def _send(self, content: bytes | list[bytes] | str, ranks: Iterable[int], deadline: float) -> None:
        sending = [self._comm.isend(content, rank, _TAG) for rank in ranks]
        self._requests += sending
        own = self._comm.Get_rank()
        text = f"rank {own} sends in init() to rank(s) {listed(set(ranks))} of the MPI communicator"
        self._wait(lambda: all(each.test()[0] for each in sending), deadline, lambda: text)

    def _wait(self, is_done: Callable[[], bool], deadline: float, text: Callable[[], str]) -> None:
        pause_s = 0.001
        while not is_done():
            self._reminder.look(deadline, text)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)


class _Receipt:
    """A receive of the next message of a rank."""

    def __init__(self, comm: Communicator, source: int, requests: list[Request]) -> None:
        self._comm, self._source, self._requests = comm, source, requests
        self._receiving: Request | None = None
        self.content: Any = None

    def is_there(self) -> bool:
        """Return whether the message is there. Do not call this again after it returned True."""
        if self._receiving is None:
            message = self._comm.improbe(self._source, _TAG)
            if message is None:
                return False
            self._receiving = message.irecv()
            self._requests.append(self._receiving)
        done, self.content = self._receiving.test()
        return done


_given_up: list[_Exchange] = []  # kept alive, because MPI may still use the memory of their requests
