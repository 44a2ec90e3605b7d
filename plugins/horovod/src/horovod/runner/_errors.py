"""What `horovod.run` raises when a rank fails: in Horovod's words, and both a RuntimeError and what the rank raised."""

from __future__ import annotations

import functools
from typing import Any

# Programs match the beginning, and some the last two lines.
_MESSAGE = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated."
)


def of_job(error: Exception) -> Exception:
    """The error of a job whose rank failed, for programs that catch RuntimeError as well as for those that catch its
    own class; the same error where no rank failed. It can be pickled.
    """
    rank = getattr(error, "failed_rank", None)
    if rank is None:
        return error
    code = error.exit_code  # type: ignore[attr-defined]
    text = f"{_MESSAGE} The first of them:\nProcess name: {rank}\nExit code: {code}\n"
    try:
        result = _copy(error)
    except Exception:  # such as a class that cannot be derived from, or that is made from other arguments
        result = RuntimeError(f"{text}{type(error).__name__}: {error}")
    else:
        vars(result).update(words_of_horovod=text, raised_by_rank=error)
    return result


def of_command(code: int) -> RuntimeError:
    """The error of a command that ended with this exit code, after its own words."""
    return RuntimeError(f"{_MESSAGE}\nExit code: {code}\n")


def _copy(error: Exception) -> Exception:
    """A copy of the error, of the class that is a RuntimeError, too."""
    made: Any = error.__reduce__()
    if made[0] is not type(error):
        raise TypeError
    result = _also_runtime_error(made[0])(*made[1])  # type: ignore[arg-type]  # mypy doubts that classes are hashable
    if len(made) > 2:
        result.__setstate__(made[2])
    return result


@functools.cache
def _also_runtime_error(kind: Any) -> type[Exception]:
    def to_text(self: Any) -> str:
        return f"{self.words_of_horovod}{kind.__str__(self)}"

    def reduce(self: Any) -> tuple[Any, ...]:
        return of_job, (self.raised_by_rank,)

    bases = (kind,) if issubclass(kind, RuntimeError) else (kind, RuntimeError)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, bases, {**names, "__str__": to_text, "__reduce__": reduce})
