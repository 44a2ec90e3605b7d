"""PMI-2, through which the tasks of a Slurm step exchange some bytes: srun --mpi=pmi2.

PMI_FD is a socket to Slurm's daemon on this host. A message is its length in six characters, then its text:

    "    14cmd=kvs-fence;"                     ->  "    28cmd=kvs-fence-response;rc=0;"

    every rank    name-publish                 that it has come, which all ranks can look up at any time
                  kvs-put, in pieces           its bytes
                  kvs-fence                    answered when all ranks have asked, which may never happen
                  kvs-get, for each rank       their bytes

Slurm sends the bytes between hosts in plain text, so they are sealed by MUNGE if it is there. Values are in base64 or
MUNGE's form of it, which needs no quoting.
"""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from farandole._api.errors import DeadlineError
from farandole._start.key_exchange import ANSWER_S, Reminder, is_readable, listed
from farandole._start.munge import Seal

_LENGTH_BYTES = 6
_PIECE = 960  # characters of a value; Slurm allows 1024
_LOOK_SECONDS = 1.0  # between two checks of the time while ranks are late
_ANSWER_SECONDS = 60.0  # for all commands except a fence, which this host's daemon or srun's answers
_OPENING = b"cmd=init pmi_version=2 pmi_subversion=0\n"


@dataclass(frozen=True)
class Step:
    """A rank's place in a step, and its socket."""

    rank: int
    size: int
    job: str  # Slurm's name of the step
    descriptor: int


class PmiError(OSError):
    """Slurm's PMI failed; the message is one sentence."""


_connections: dict[int, Connection] = {}


def exchange_of(step: Step, timeout_s: float) -> Callable[[bytes], list[bytes]]:
    """Return an exchange, which returns the bytes of every rank of the step, by rank. Collective in the step.

    The exchange raises DeadlineError, which names the ranks that have not come `timeout_s` from now, and PmiError.
    """
    connection = _connections.get(step.descriptor) or _connections.setdefault(step.descriptor, Connection(step))
    deadline, reminder = time.monotonic() + timeout_s, Reminder()
    return lambda mine: connection.exchange(mine, deadline, reminder)


class Connection:
    """This process's end of PMI_FD. It lives as long as the process, because PMI can be started only once."""

    def __init__(self, step: Step) -> None:
        self._step = step
        try:
            self._socket = socket.socket(fileno=os.dup(step.descriptor))
        except OSError as error:
            raise PmiError(
                f"PMI_FD={step.descriptor} is no socket in this process ({error.strerror}): a program between srun and "
                "this one has closed it; start this one by srun itself, or through a shell"
            ) from error
        self._round = 0
        self._fence_is_over = True
        self._is_usable = False  # until the first answer, and after an exchange that was left early
        self._open()

    def exchange(self, mine: bytes, deadline: float, reminder: Reminder) -> list[bytes]:
        """See exchange_of."""
        if not self._is_usable:
            raise PmiError("an earlier init() has left Slurm's PMI in the middle of a start; start the step anew")
        self._is_usable = False
        self._round += 1
        self._say("name-publish", name=self._name(self._step.rank), port="here")
        for key, piece in self._pieces(Seal(self._name(self._step.rank), self._step.job).close(mine)):
            self._say("kvs-put", key=key, value=piece)
        self._fence(deadline, reminder)
        everything = [self._bytes_of(rank) for rank in range(self._step.size)]
        self._is_usable = True
        return everything

    def _open(self) -> None:
        self._send(_OPENING)
        answer = self._receive_line()
        if b" rc=0 " not in answer.replace(b"\n", b" "):
            raise PmiError(f"Slurm's PMI refuses the version 2 of its protocol: {answer.decode(errors='replace')!r}")
        place = self._say("fullinit", pmijobid=self._step.job, pmirank=str(self._step.rank), threaded="FALSE")
        rank, size = place.get("rank"), place.get("size")
        if (rank, size) != (str(self._step.rank), str(self._step.size)):
            raise PmiError(
                f"Slurm's PMI says rank {rank} of {size}, but the step's variables rank {self._step.rank} of "
                f"{self._step.size}; start all ranks as one program of one step"
            )
        self._is_usable = True

    # ---- the bytes of ranks

    def _name(self, rank: int) -> str:
        return f"farandole-{self._round}-{rank}"

    def _pieces(self, text: str) -> Iterator[tuple[str, str]]:
        pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        yield f"{self._name(self._step.rank)}-pieces", str(len(pieces))
        for number, piece in enumerate(pieces):
            yield f"{self._name(self._step.rank)}-{number}", piece

    def _bytes_of(self, rank: int) -> bytes:
        name = self._name(rank)
        text = "".join(self._value(f"{name}-{number}") for number in range(int(self._value(f"{name}-pieces"))))
        return Seal(name, self._step.job).believed(text, rank)

    def _value(self, key: str) -> str:
        answer = self._say("kvs-get", jobid=self._step.job, srcid="-1", key=key)
        if answer.get("found") != "TRUE":
            raise PmiError(f"Slurm's PMI has lost what a rank has put there as {key}; start the step anew")
        return answer["value"]

    def _fence(self, deadline: float, reminder: Reminder) -> None:
        """Wait for all ranks. At its deadline, rank 0 looks up who has come and tells the others, which wait longer."""
        own, late = self._step.rank, f"{self._name(0)}-late"
        self._leave_if_said(late)
        self._fence_is_over = False
        self._send(_framed("kvs-fence"))
        while not self._fence_is_over and not is_readable(self._socket, _LOOK_SECONDS):
            if own and time.monotonic() > deadline:
                self._leave_if_said(late)
            try:
                reminder.look(deadline + (ANSWER_S if own else 0.0), self._waiting_for)
            except DeadlineError as error:
                if own == 0:
                    self._say("name-publish", name=late, port=base64.b64encode(str(error).encode()).decode())
                raise
        if not self._fence_is_over:
            self._check("kvs-fence", self._answer("kvs-fence"))

    def _leave_if_said(self, late: str) -> None:
        """Raise DeadlineError if rank 0 has given up."""
        if answered := self._look_up(late):
            raise DeadlineError(f"rank {self._step.rank} leaves init(): {base64.b64decode(answered).decode()}")

    def _waiting_for(self) -> str:
        step = f"of the {self._step.size} that srun started"
        if self._step.rank:
            others = ", or for those that rank 0 names" if self._look_up(self._name(0)) else ""
            return f"rank {self._step.rank} waits in init() for rank 0 {step}{others}"
        late = {rank for rank in range(self._step.size) if not self._look_up(self._name(rank))}
        return f"rank 0 waits in init() for rank(s) {listed(late)} {step}"

    def _look_up(self, name: str) -> str:
        return self._ask("name-lookup", name=name).get("value", "")

    # ---- messages

    def _say(self, command: str, **fields: str) -> dict[str, str]:
        return self._check(command, self._ask(command, **fields))

    def _check(self, command: str, answer: dict[str, str]) -> dict[str, str]:
        if answer.get("rc") != "0":
            raise PmiError(f"Slurm's PMI refuses {command}: {answer.get('errmsg') or answer}; start the step anew")
        return answer

    def _ask(self, command: str, **fields: str) -> dict[str, str]:
        self._send(_framed(command, **fields))
        return self._answer(command)

    def _answer(self, command: str) -> dict[str, str]:
        """Return the next answer to `command`. The answer to a fence may come before it."""
        while True:
            length = self._receive(_LENGTH_BYTES)
            if not length.strip().isdigit():
                raise PmiError(f"Slurm's PMI answers {length!r}, which is no length of a message")
            fields = self._receive(int(length)).decode().split(";")
            answer = dict(word.partition("=")[::2] for word in fields if word)
            answered = answer.get("cmd", "").removesuffix("-response")
            if answered == command:
                return answer
            if answered != "kvs-fence":
                raise PmiError(f"Slurm's PMI answers {command} by {answered!r}; start the step anew")
            self._check(answered, answer)
            self._fence_is_over = True

    def _send(self, message: bytes) -> None:
        try:
            self._socket.sendall(message)
        except OSError as error:
            raise PmiError(f"Slurm's PMI has closed PMI_FD ({error.strerror}): the step has ended") from error

    def _receive_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += self._receive(1)
        return line

    def _receive(self, length: int) -> bytes:
        received = b""
        until = time.monotonic() + _ANSWER_SECONDS
        while len(received) < length:
            if not is_readable(self._socket, 0.2):
                if time.monotonic() > until:
                    raise PmiError(f"Slurm's PMI has not answered for {_ANSWER_SECONDS:.0f} s")
                continue
            piece = self._socket.recv(length - len(received))
            if not piece:
                raise PmiError("Slurm's PMI has closed PMI_FD: the step has ended, or another library has used it up")
            received += piece
        return received


def _framed(command: str, **fields: str) -> bytes:
    text = "".join(f"{name}={value};" for name, value in {"cmd": command, **fields}.items()).encode()
    return b"%*d%s" % (_LENGTH_BYTES, len(text), text)
