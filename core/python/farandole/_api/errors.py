"""The exceptions of Farandole: who is to blame decides the class, so that a program can react to it.

    FarandoleError (RuntimeError)
      ArgumentError (also ValueError)        a call that cannot be, whatever the other ranks ask for: a bad root, an
                                             unsupported dtype, a name in flight twice, too many process sets
      ArgumentTypeError (also TypeError)     an argument of a type that the call does not take
      MismatchError (also ValueError)        the ranks asked for different things: fix the program; the job goes on
      NotInitializedError (also ValueError)  used before init() or after shutdown()
      RecoverableError                       the world is broken; a new one could go on from the last checkpoint
        PeerLostError                          a rank died or left
        DeadlineError (also TimeoutError)      a living rank did not come in time
      MembershipError                      an elastic job cannot go on for this rank
    HostsUpdatedInterrupt                  no failure: an elastic job is to go on with other ranks

Programs written for Horovod catch a refused call as a RuntimeError, which all of these are. A bad argument of an
optimizer is a plain ValueError or TypeError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

_why_absent = ""  # see explain_absence
_plain_absence = "farandole is not initialized"  # the beginning of messages about a missing world


class FarandoleError(RuntimeError):
    """The base class of the exceptions that collectives raise."""

    others_know: bool = False
    """Whether the other ranks' calls fail as well, so that this rank's next call matches theirs; see refusals.py."""

    if not TYPE_CHECKING:
        __init__ = (
            Exception.__init__
        )  # by which TensorFlow knows an error that it can raise again with the user's lines


class ArgumentError(FarandoleError, ValueError):
    """A call of this rank that is invalid whatever the other ranks ask for; the job goes on."""


class ArgumentTypeError(FarandoleError, TypeError):
    """An argument of a type that the call does not take; the job goes on."""


class MismatchError(FarandoleError, ValueError):
    """The ranks disagree about one operation (its shape, dtype, kind, ...); all raise it, the job goes on.

    Ranks that find in the middle of an epoch of Keras that their numbers of batches differ raise it, too; that ends the
    world, since they cannot meet again.
    """

    operations: frozenset[str] = frozenset()
    """The operations that the ranks called, such as "allreduce" and "allgather"; empty if all called the same."""


class MembershipError(FarandoleError):
    """An elastic job cannot go on for this rank: too few ranks are left, or nobody can decide who they are."""


class HostsUpdatedInterrupt(RuntimeError):
    """The ranks of an elastic job change: some leave or join. Raised on all ranks at the same commit.

    `farandole`'s `elastic.run` catches it and calls the function again with the ranks that stay.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(
            "the ranks of this elastic job change; elastic.run catches this, so commit within the function given to it"
        )
        self.skip_sync = skip_sync
        """True if ranks only leave: the remaining ranks have equal states, so `sync` is skipped."""


class NotInitializedError(FarandoleError, ValueError):
    """Farandole was used before `farandole.init()`, after `farandole.shutdown()`, or in a forked child."""

    drop_in_message = ""
    """The text of a drop-in module for another library in place of "farandole is not initialized"."""

    def __str__(self) -> str:
        text, message = super().__str__(), self.drop_in_message
        if message and (_why_absent or text.startswith(_plain_absence)):
            return f"{message}: {_why_absent}" if _why_absent else message
        return _why_absent or text


class RecoverableError(FarandoleError):
    """This world cannot go on, through no fault of the program; `shutdown()` and `init()` may build a new one."""


HorovodInternalError = RecoverableError  # the name by which Horovod's users catch it


class PeerLostError(RecoverableError):
    """A rank died or left while others needed it. The message names it, its host and the operation."""


class DeadlineError(RecoverableError, TimeoutError):
    """A living rank did not take part in time. The message names it and the operation."""


def explain_absence(sentence: str) -> None:
    """Set the reason why there is no world although `init` was called; "" if there is one."""
    global _why_absent
    _why_absent = sentence


def not_initialized() -> NotInitializedError:
    """Return the error to raise if a world is needed and there is none."""
    return NotInitializedError(f"{_plain_absence} in this process: call farandole.init() first")


# The compiled core's error kinds (see _core.pyi) -> what Python raises.
TYPES_BY_KIND: dict[int, type[FarandoleError]] = {
    1: ArgumentError,
    2: MismatchError,
    3: PeerLostError,
    4: DeadlineError,
    5: NotInitializedError,
    6: FarandoleError,
    7: DeadlineError,
}

# Tracebacks show the name by which users catch it.
_OTHERS = ArgumentTypeError, RecoverableError, MembershipError, HostsUpdatedInterrupt
for _error in (FarandoleError, *TYPES_BY_KIND.values(), *_OTHERS):
    _error.__module__ = "farandole"
