"""The thread of the diagnosis. It sleeps in the core, without the GIL, until there is news."""

from __future__ import annotations

import contextlib
import threading
import time

from farandole._runtime.diagnosis import stacks
from farandole._runtime.diagnosis.diagnosis import Diagnosis
from farandole._runtime.diagnosis.facts import Report
from farandole._runtime.native import core


class _State:
    thread: threading.Thread | None = None
    has_signal = False


_state = _State()


def start(rank: int) -> None:
    """Start the thread. Call it in a world of several ranks, after the core has joined the world."""
    if not _state.has_signal:
        _state.has_signal = True
        with contextlib.suppress(OSError):  # no more file descriptors: then the core answers without stacks
            stacks.answer_signal(core.set_stack_signal)
    _state.thread = threading.Thread(target=_run, args=(rank,), name="farandole diagnosis", daemon=True)
    _state.thread.start()


def stop() -> None:
    """End the thread. Call it after the core has left the world."""
    if _state.thread is not None and _state.thread is not threading.current_thread():
        _state.thread.join()
    _state.thread = None


def _run(rank: int) -> None:
    diagnosis = Diagnosis(rank, core, time.monotonic)
    while (news := core.await_news()) is not None:
        report, askers, answers = news
        diagnosis.on_news(None if report is None else Report.of(report), askers, answers)
