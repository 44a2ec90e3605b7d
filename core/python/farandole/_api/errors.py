"""The exceptions of Farandole: who is to blame decides the class, so that a program can react to it.

    FarandoleError (RuntimeError)
      MismatchError (also ValueError)        the ranks asked for different things: fix the program; the job goes on
      NotInitializedError (also ValueError)  used before init() or after shutdown()
      RecoverableError                       the world is broken; a new one could go on from the last checkpoint
        PeerLostError                          a rank died or left
        DeadlineError (also TimeoutError)      a living rank did not come in time

A call that cannot be, whatever the other ranks ask for (a bad root, an unsupported dtype, a name in flight twice, more
process sets than there can be), is a plain ValueError.
"""

from __future__ import annotations


class FarandoleError(RuntimeError):
    """Base of every error that is not a plain misuse of one function."""


class MismatchError(FarandoleError, ValueError):
    """The ranks disagree about one operation (its shape, dtype, kind, ...); all raise it, the job goes on."""

    operations: frozenset[str] = frozenset()
    """What the ranks called, such as "allreduce" and "allgather"; empty where all called the same."""


class NotInitializedError(FarandoleError, ValueError):
    """Farandole was used before `farandole.init()`, after `farandole.shutdown()`, or in a forked child."""


class RecoverableError(FarandoleError):
    """This world cannot go on, through no fault of the program; `shutdown()` and `init()` may build a new one."""


HorovodInternalError = RecoverableError  # the name by which Horovod's users catch it


class PeerLostError(RecoverableError):
    """A rank died or left while others needed it. The message names it, its host and the operation."""


class DeadlineError(RecoverableError, TimeoutError):
    """A living rank did not take part in time. The message names it and the operation."""


def not_initialized() -> NotInitializedError:
    """The error to raise where a world is needed and there is none."""
    return NotInitializedError("farandole is not initialized in this process: call farandole.init() first")


# The compiled core's error kinds (see _core.pyi) -> what Python raises.
TYPES_BY_KIND: dict[int, type[BaseException]] = {
    1: ValueError,
    2: MismatchError,
    3: PeerLostError,
    4: DeadlineError,
    5: NotInitializedError,
    6: FarandoleError,
}

# Tracebacks show the name by which users catch it.
for _error in (FarandoleError, MismatchError, NotInitializedError, RecoverableError, PeerLostError, DeadlineError):
    _error.__module__ = "farandole"
