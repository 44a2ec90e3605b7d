"""What is said while something is done, and at the end."""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Iterator

import nox

steps_taken: list[tuple[str, str, float]] = []  # (what, how it ended, seconds)


@contextlib.contextmanager
def step(what: str, expect: str = "") -> Iterator[None]:
    """Say what starts and about how long or large it is; remember how long it took."""
    print(f"==> {what}" + (f" ({expect})" if expect else ""), flush=True)
    begin = time.monotonic()
    result = "FAILED"
    try:
        yield
        result = "ok"
    finally:
        steps_taken.append((what, result, time.monotonic() - begin))


@atexit.register
def summary() -> None:
    if steps_taken:
        print("\n==> Summary")
    for what, result, seconds in steps_taken:
        print(f"{result:>8} {seconds:7.1f} s  {what}", flush=True)


def run_all(session: nox.Session, actions: dict[str, Callable[[], None]]) -> None:
    """Run each action as a step, the later ones too when an earlier one failed; then fail if any did."""
    failed = []
    for name, action in actions.items():
        try:
            with step(name):
                action()
        except nox.command.CommandFailed:
            failed.append(name)
    if failed:
        session.error(f"failed: {', '.join(failed)}")
