"""The finding of one check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

OK, WARN, FAIL = "OK", "WARN", "FAIL"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `fix` is the sentence that says what to do, and stands wherever `level` is not OK."""

    level: str
    check: str
    text: str
    fix: str = ""
    host: str = ""  # of several that are examined; "" for a finding about all of them


def ok(check: str, text: str) -> Finding:
    """A finding without a problem."""
    return Finding(OK, check, text)


def warn(check: str, text: str, fix: str) -> Finding:
    """Something is lost: speed, a feature, a clear message."""
    return Finding(WARN, check, text, fix)


def fail(check: str, text: str, fix: str) -> Finding:
    """A job cannot run like this."""
    return Finding(FAIL, check, text, fix)


def warn_unless(is_good: bool, check: str, text: str, fix: str, bad: str = "") -> Finding:
    """OK or WARN. `bad`: in place of `text` where it is not good."""
    return ok(check, text) if is_good else warn(check, bad or text, fix)


def fail_unless(is_good: bool, check: str, text: str, fix: str, bad: str = "") -> Finding:
    """OK or FAIL, likewise."""
    return ok(check, text) if is_good else fail(check, bad or text, fix)


def error_of(trial: Callable[[], object]) -> str:
    """The error of a system call; "" where it works."""
    try:
        trial()
    except OSError as error:
        return error.strerror or str(error)
    return ""
