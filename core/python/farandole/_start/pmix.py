"""PMIx, by which the tasks of a step of Slurm tell each other some bytes: srun --mpi=pmix.

libpmix is opened at run time. Its calls wait, and do not tell for which rank, so that a thread makes them: MUNGE seals
the bytes where it is, as in pmi2.py.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from farandole._start.key_exchange import through_library
from farandole._start.munge import Seal

_LIBRARY = "libpmix.so.2"
_GLOBAL = ctypes.c_uint8(3)  # pmix_scope_t
_BOOL, _STRING = 1, 3  # pmix_data_type_t
_NONE = (None, ctypes.c_size_t(0))  # an empty list
_INSTEAD = "start the ranks with `srun --mpi=pmi2`"


class _Process(ctypes.Structure):
    """pmix_proc_t."""

    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    """pmix_value_t, whose union has at most three words, of which a string is the first."""

    _fields_ = (("type", ctypes.c_uint16), ("words", ctypes.c_void_p * 3))


class _Info(ctypes.Structure):
    """pmix_info_t."""

    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint32), ("value", _Value))


class PmixError(OSError):
    """PMIx does not do its part; the message is one sentence."""


@dataclass
class _Session:
    library: Any
    me: _Process
    rounds: int = 0


_sessions: list[_Session] = []  # one, which lives as long as the process


def exchange_of(rank: int, size: int, timeout_s: float) -> Callable[[bytes], list[bytes]]:
    """The exchange that returns the bytes of every rank of the step, by rank. Collective there.

    Raises DeadlineError where ranks have not come `timeout_s` from now; PmixError.
    """
    return through_library(rank, size, "srun", timeout_s, lambda mine: _exchange(rank, size, mine))


def _exchange(rank: int, size: int, mine: bytes) -> list[bytes]:
    session = _session(rank)
    session.rounds += 1
    library, job = session.library, session.me.namespace.decode()
    names = [f"farandole-{session.rounds}-{each}" for each in range(size)]
    text = ctypes.c_char_p(Seal(names[rank], job).close(mine).encode())
    value = _Value(type=_STRING)
    value.words[0] = ctypes.cast(text, ctypes.c_void_p).value
    _check(library.PMIx_Put(_GLOBAL, names[rank].encode(), ctypes.byref(value)), "PMIx_Put")
    _check(library.PMIx_Commit(), "PMIx_Commit")
    # A server asks for another's data once, so that those of later rounds must come with the fence.
    collects = _Info(b"pmix.collect", 0, _Value(type=_BOOL))
    collects.value.words[0] = 1
    _check(library.PMIx_Fence(*_NONE, ctypes.byref(collects), ctypes.c_size_t(1)), "PMIx_Fence")
    return [_bytes_of(session, other, name) for other, name in enumerate(names)]


def _bytes_of(session: _Session, rank: int, name: str) -> bytes:
    place, value = _Process(session.me.namespace, rank), ctypes.POINTER(_Value)()
    got = session.library.PMIx_Get(ctypes.byref(place), name.encode(), *_NONE, ctypes.byref(value))
    _check(got, "PMIx_Get")
    if value.contents.type != _STRING:
        raise PmixError(f"PMIx holds no text of rank {rank}; {_INSTEAD}")
    text = ctypes.string_at(value.contents.words[0]).decode()
    return Seal(name, session.me.namespace.decode()).believed(text, rank)


def _session(rank: int) -> _Session:
    if not _sessions:
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise PmixError(
                f"srun has started the ranks with PMIx, and this host has no {_LIBRARY}; {_INSTEAD}"
            ) from None
        session = _Session(library, _Process())
        _check(library.PMIx_Init(ctypes.byref(session.me), *_NONE), "PMIx_Init")
        if session.me.rank != rank:
            raise PmixError(f"PMIx says rank {session.me.rank}, and the step's variables rank {rank}; {_INSTEAD}")
        atexit.register(library.PMIx_Finalize, *_NONE)  # Slurm ends the step of a task that leaves without it
        _sessions.append(session)
    return _sessions[0]


def _check(code: int, call: str) -> None:
    if code != 0:
        raise PmixError(f"{call} of PMIx fails with code {code}; {_INSTEAD}")
