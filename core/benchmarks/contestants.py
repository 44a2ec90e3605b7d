"""Those who take part in the benchmark: processes that wait until it is their turn. See worker.h for what is said."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

START_S = 60.0
ANSWER_S = 90.0


class ContestantError(Exception):
    """A contestant did not start, ended or did not answer; the message says which."""


@dataclass(frozen=True)
class Recipe:
    """How to start a contestant. Without a launcher one process per rank is started here."""

    name: str
    command: tuple[str, ...]
    launcher: tuple[str, ...] = ()  # `mpiexec -n {ranks}`; puts its own variables
    variables: dict[str, str] = field(default_factory=dict)
    what: str = "allreduce"
    most_bytes: int = 1 << 62  # what it is made for


def settings_of_intel_mpi(prefix: Path) -> dict[str, str]:
    """Its variables over shared memory: where it lies, which its script for shells says; workers choose their cores."""
    return {"I_MPI_ROOT": str(prefix), "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"}


@dataclass(frozen=True)
class RankSlot:
    """Where a rank runs."""

    inside: tuple[str, ...] = ()  # the start of a command there
    variables: dict[str, str] = field(default_factory=dict)


def slots_of_one_host(ranks: int) -> list[RankSlot]:
    common = {"FARANDOLE_LOCAL_SIZE": str(ranks), "FARANDOLE_CROSS_RANK": "0", "FARANDOLE_CROSS_SIZE": "1"}
    common["FARANDOLE_STORE"] = f"unix:farandole-bench-{os.urandom(16).hex()}"
    return [RankSlot((), {**common, "FARANDOLE_LOCAL_RANK": str(rank)}) for rank in range(ranks)]


class Contestant:
    """A started contestant."""

    def __init__(self, recipe: Recipe, ranks: int, folder: Path, slots: Sequence[RankSlot] = ()) -> None:
        self.name = recipe.name
        self.what = recipe.what
        self.ranks = ranks
        self._slots = slots or slots_of_one_host(ranks)
        self._home = folder / "".join(letter if letter.isalnum() else "-" for letter in recipe.name)
        self._home.mkdir()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[socket.socket] = []
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self._home / "socket"))
                listener.listen(ranks)
                self._start(recipe)
                self._accept(listener)
        except BaseException:
            self.close()
            raise

    def measure(self, size_bytes: int, repetitions: int, batches: int, what: str = "") -> list[float]:
        """Seconds of one operation in each batch, on the slowest rank."""
        line = f"{what or self.what} {size_bytes} {repetitions} {batches}\n".encode()
        try:
            for connection in self._connections:
                connection.sendall(line)
            answers = [[float(word) for word in self._line(connection).split()] for connection in self._connections]
        except OSError as error:
            raise ContestantError(f"{self.name} gave no answer to `{line.decode().strip()}`: {error}") from error
        return [max(batch) for batch in zip(*answers, strict=True)]

    def close(self) -> None:
        """Let its ranks end, and end those that do not."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # a session of its own
            process.wait()

    def _start(self, recipe: Recipe) -> None:
        common = {**os.environ, **recipe.variables, "BENCH_SOCKET": str(self._home / "socket")}
        common["BENCH_SHARED"] = str(self._home / "shared")
        (self._home / "shared").touch()
        key = self._home / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o400)
        common["FARANDOLE_KEY_FILE"] = str(key)
        if recipe.launcher:
            common["FARANDOLE_STORE"] = self._slots[0].variables["FARANDOLE_STORE"]
            command = [word.format(ranks=self.ranks) for word in recipe.launcher] + list(recipe.command)
            self._processes.append(subprocess.Popen(command, env=common, start_new_session=True))
            return
        for rank, slot in enumerate(self._slots):
            variables = {"BENCH_RANK": str(rank), "BENCH_RANKS": str(self.ranks)}
            variables |= {"FARANDOLE_RANK": str(rank), "FARANDOLE_SIZE": str(self.ranks), **slot.variables}
            command = [*slot.inside, *recipe.command]
            self._processes.append(subprocess.Popen(command, env={**common, **variables}, start_new_session=True))

    def _accept(self, listener: socket.socket) -> None:
        by_rank: dict[int, socket.socket] = {}
        listener.settimeout(START_S)
        while len(by_rank) < self.ranks:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                raise ContestantError(
                    f"{self.name} did not start: {len(by_rank)} of {self.ranks} ranks came"
                ) from error
            self._connections.append(connection)
            connection.settimeout(ANSWER_S)
            _, rank, ranks = self._line(connection).split()
            if int(ranks) != self.ranks:
                raise ContestantError(f"{self.name} started {ranks} ranks, not {self.ranks}")
            by_rank[int(rank)] = connection

    def _line(self, connection: socket.socket) -> str:
        received = b""
        while not received.endswith(b"\n"):
            part = connection.recv(65536)
            if not part:
                raise ContestantError(f"a rank of {self.name} has ended")
            received += part
        return received.decode()
