"""The outcome of a rank, a result or an exception, on its way to the caller."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from farandole._api.errors import FarandoleError
from farandole._functions import call_payload
from farandole._runtime import pickling
from farandole._runtime.uncaught import Uncaught
from farandole._start import frames

if TYPE_CHECKING:
    from farandole.launch.job import JobResult
    from farandole.launch.spec import SpecError


class RankTraceback(Exception):
    """The cause of an exception that a rank raised: that rank's traceback, as text."""

    __module__ = "farandole"  # tracebacks show it

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class without_our_frames:
    """The traceback of a failed rank's error ends at the line that called this function, from Python 3.11 on."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Our frames tell nothing about what a rank raised."""
        if error is not None and hasattr(error, "failed_rank"):
            error.with_traceback(None)


class _Outcome(NamedTuple):
    """What one rank leaves: a message, and the payload, whose size it tells."""

    payload: bytes | memoryview  # a pickled result or exception; b"" where it cannot be pickled
    traceback: str = ""  # "" for a result

    @property
    def message(self) -> bytes:
        """The bytes before the payload."""
        return frames.message("outcome", traceback=self.traceback, size=len(self.payload))


def write_result(descriptor: int, rank: int, result: object) -> None:
    """Leave a result for the caller. Raises TypeError where it cannot be pickled."""
    _write(descriptor, _of_result(rank, result))


def _of_result(rank: int, result: object) -> _Outcome:
    try:
        payload = pickling.dumps(result)
    except Exception as error:
        what = f"the result of rank {rank}, of type {type(result).__name__}, cannot be pickled ({error})"
        raise TypeError(f"{what}; return numbers, arrays or a state_dict().") from error
    return _Outcome(payload)


def write_error(descriptor: int, error: BaseException) -> None:
    """Leave an exception and its traceback for the caller."""
    _write(descriptor, _Outcome(pickling.dumps_error(error), _text_of(error)))


def of_call(call: bytes, rank: int) -> tuple[bytes, Exception | None]:
    """Make a pickled call: its outcome, and what it raised."""
    raised = None
    try:
        fn, args, kwargs = call_payload.load(call)
        found = _of_result(rank, fn(*args, **kwargs))
    except Exception as error:
        raised, found = error, _Outcome(pickling.dumps_error(error), _text_of(error))
    return b"".join((found.message, found.payload)), raised


def _text_of(error: BaseException) -> str:
    """The traceback of what a call has raised, without the frames of ours and of our plugins that made the call."""
    trace = error.__traceback__
    while trace and trace.tb_next and str(trace.tb_frame.f_globals.get("__name__")).startswith("farandole"):
        trace = trace.tb_next
    return Uncaught(error, trace).text


def traceback_in(data: bytes) -> str:
    """The traceback in what `of_call` has made; "" where there is a result, or nothing whole."""
    found = _read(data)
    return "" if found is None else found.traceback


def result_in(data: bytes, rank: int, ranks: int) -> Any:
    """The result in what `of_call` has made. Raises what the call raised on that rank, its traceback as the cause."""
    found = _read(data)
    assert found is not None
    if found.traceback:
        raise _error(found, rank, ranks)
    return pickle.loads(found.payload)


def _write(descriptor: int, outcome: _Outcome) -> None:
    for part in (outcome.message, outcome.payload):
        view = memoryview(part)
        while view:
            view = view[os.write(descriptor, view) :]


def _read(data: bytes | bytearray) -> _Outcome | None:
    """The outcome of a rank; None if the rank died before it had written all of it."""
    header, payload = frames.split(data)
    return _Outcome(payload, header["traceback"]) if header and header["size"] == len(payload) else None


def refused(error: SpecError) -> FarandoleError:
    """The error of a job that the launcher could not start."""
    made = FarandoleError(str(error))
    _of_job(made, None, 2)
    return made


def results(result: JobResult, ranks: int, is_elastic: bool = False) -> list[Any]:
    """The results in rank order. Raises the exception of the rank that failed first, or FarandoleError.

    Args:
        result: of the job.
        ranks: of its start.
        is_elastic: ranks that were lost or told to leave are no failure of a job that has ended well. Ranks count as
            they were started, newcomers last; those of the last epoch have the same order.
    """
    outcomes = {rank: found for rank, data in result.outcomes.items() if (found := _read(data)) is not None}
    failed = {rank: each for rank, each in outcomes.items() if each.traceback}
    culprit = result.ended.culprit
    first = next(iter(failed), None) if culprit is None else culprit  # in the order of arrival
    teller = first if result.ended.waiter is None else result.ended.waiter
    has_gone_on = is_elastic and result.exit_code == 0
    if teller in failed and not has_gone_on:
        raise _of_job(_error(failed[teller], teller, ranks), first, result.exit_code)
    if result.exit_code != 0:
        sentence = result.ended.text or f"the launcher ended with exit code {result.exit_code} and printed no reason."
        raise _of_job(FarandoleError(sentence), first, result.exit_code)
    finished = sorted(outcomes.keys() - failed.keys()) if is_elastic else range(ranks)
    if not finished:
        raise FarandoleError("all ranks left before the function returned, so there is no result; call it again.")
    missing = [rank for rank in finished if rank not in outcomes]
    if missing:
        raise FarandoleError(f"rank {missing[0]} ended with exit code 0 before its function returned; let it return.")
    return [pickle.loads(outcomes[rank].payload) for rank in finished]


def _of_job(error: BaseException, failed_rank: int | None, exit_code: int) -> BaseException:
    """The error with the facts about the job as attributes."""
    vars(error).update(failed_rank=failed_rank, exit_code=exit_code)
    return error


def _error(outcome: _Outcome, rank: int, ranks: int) -> BaseException:
    """What the rank raised; its traceback is the cause. Nothing is set by the class itself, which may be frozen."""
    name = f"rank {rank} of {ranks}" if rank < ranks else f"rank {rank}"  # one that was started later
    error: BaseException | None
    try:
        error = pickle.loads(outcome.payload) if outcome.payload else None
    except Exception:
        error = None
    if error is None:
        _, _, last_line = outcome.traceback.rstrip().rpartition("\n")
        error = FarandoleError(f"{name} raised {last_line}")
    else:
        vars(error).setdefault("__notes__", []).append(f"raised on {name}")
    BaseException.__setattr__(error, "__cause__", RankTraceback(f"{name}:\n{outcome.traceback}"))
    return error
