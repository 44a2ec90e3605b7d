"""The outcome of a rank, a result or an exception, as a file that the caller reads."""

from __future__ import annotations

import os
import pickle
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from farandole._api.errors import FarandoleError

if TYPE_CHECKING:
    from farandole._functions.starter import Ended


class RankTraceback(Exception):
    """The cause of an exception that a rank raised: that rank's traceback, as text."""

    __module__ = "farandole"  # tracebacks show it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class _Outcome(NamedTuple):
    """The content of the file that one rank wrote."""

    at_s: float  # of a clock that all processes of this host share
    payload: bytes  # a pickled result or exception; b"" where it cannot be pickled
    traceback: str  # "" for a result
    summary: str  # the last line of the traceback


def write_result(folder: str, rank: int, result: object) -> None:
    """Leave a result for the caller. Raises TypeError where it cannot be pickled."""
    from farandole._runtime import pickling

    try:
        payload = bytes(pickling.dumps(result))
    except Exception as error:
        what = f"the result of rank {rank}, of type {type(result).__name__}, cannot be pickled ({error})"
        raise TypeError(f"{what}; return numbers, arrays or a state_dict().") from error
    _write(folder, rank, _Outcome(time.monotonic(), payload, "", ""))


def write_error(folder: str, rank: int, error: BaseException, text: str) -> None:
    """Leave an exception and its traceback for the caller."""
    payload = _packed(error)
    summary = text.rstrip().rpartition("\n")[2]
    _write(folder, rank, _Outcome(time.monotonic(), payload, text, summary))


def _packed(error: BaseException) -> bytes:
    """The pickled exception; b"" where reading it fails, as with a class whose __init__ has other arguments."""
    from farandole._runtime import pickling

    try:
        payload = bytes(pickling.dumps(error))
        return payload if isinstance(pickle.loads(payload), type(error)) else b""
    except Exception:
        return b""


def _write(folder: str, rank: int, outcome: _Outcome) -> None:
    """A rank that dies meanwhile leaves no half of it."""
    path = _path(folder, rank)
    with open(f"{path}.part", "wb") as file:
        pickle.dump(tuple(outcome), file)
    os.replace(f"{path}.part", path)


def _path(folder: str, rank: int) -> str:
    return os.path.join(folder, f"rank{rank}")


def _read(folder: str, rank: int) -> _Outcome | None:
    try:
        with open(_path(folder, rank), "rb") as file:
            return _Outcome(*pickle.load(file))
    except FileNotFoundError:
        return None


def results(folder: str, ranks: int, ended: Ended) -> list[Any]:
    """The results in rank order. Raises the exception of the rank that failed first, or FarandoleError."""
    outcomes = {rank: found for rank in range(ranks) if (found := _read(folder, rank)) is not None}
    failed = {rank: each for rank, each in outcomes.items() if each.traceback}
    first = ended.failed_first
    if first is None and failed:
        first = min(failed, key=lambda rank: failed[rank].at_s)
    if first in failed:
        _raise(failed[first], first, ranks)
    if ended.code != 0:
        raise FarandoleError(ended.said or f"the launcher ended with exit code {ended.code} and said nothing.")
    missing = [rank for rank in range(ranks) if rank not in outcomes]
    if missing:
        raise FarandoleError(f"rank {missing[0]} ended with exit code 0 before its function returned; let it return.")
    return [pickle.loads(outcomes[rank].payload) for rank in range(ranks)]


def _raise(outcome: _Outcome, rank: int, ranks: int) -> None:
    name = f"rank {rank} of {ranks}"
    cause = RankTraceback(f"{name}:\n{outcome.traceback}")
    error: BaseException
    try:
        error = pickle.loads(outcome.payload) if outcome.payload else None  # type: ignore[assignment]
    except Exception:
        error = None  # type: ignore[assignment]
    if error is None:
        raise FarandoleError(f"{name} raised {outcome.summary}") from cause
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(f"raised on {name}")
    raise error from cause
