"""The result of one check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OK, WARN, FAIL = "OK", "WARN", "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the report. `fix` says what to do, and is set unless `level` is OK."""

    level: str
    check: str
    text: str
    fix: str = ""
    host: str = ""  # if several are examined; "" for a finding about all of them


def ok(check: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(OK, check, text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Return a finding about something that is lost: speed, a feature or a clear message."""
    return Finding(WARN, check, text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """Return a finding with which no job can run."""
    return Finding(FAIL, check, text, fix)


def warn_unless(is_good: bool, check: str, text: str, fix: str, bad: str = "") -> Finding:
    """Return OK, or WARN with the text `bad` (by default `text`)."""
    return ok(check, text) if is_good else warn(check, bad or text, fix)


def fail_unless(is_good: bool, check: str, text: str, fix: str, bad: str = "") -> Finding:
    """Return OK, or FAIL with the text `bad` (by default `text`)."""
    return ok(check, text) if is_good else fail(check, bad or text, fix)


def error_of(trial: Callable[[], object]) -> str:
    """Return the error of a system call, or "" if it works."""
    try:
        trial()
    except OSError as error:
        return error.strerror or str(error)
    return ""
