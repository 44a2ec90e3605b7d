"""A barrier stage that runs in a thread, and explanations of its end."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

Part = Callable[[Iterator[Any]], Iterator[Any]]
"""What a task does."""
_END_SECONDS = 10.0
_CANCEL_SECONDS = 5.0
# Patterns for the text of Spark's error, and sentences; the first match counts.
_KNOWN = (
    (r"FarandoleError: (?P<said>.+)", "{said}"),
    (
        r"No module named '?(?:farandole_spark|farandole)\b",
        "the executors have no farandole-spark, or another version: install the driver's on all nodes "
        "(%pip install farandole-spark, or a library of the cluster)",
    ),
    (
        r"Python in worker has different version:?\s*(?P<worker>[\d.]+) than that in driver:?\s*(?P<driver>[\d.]+)",
        "executors have Python {worker} and the driver has {driver}; set PYSPARK_PYTHON to the same one",
    ),
    (
        r"\[?SPARK-24942\]?|does not support dynamic resource allocation",
        "Spark runs no barrier stage with dynamic allocation; set spark.dynamicAllocation.enabled to false",
    ),
    (r"\[?SPARK-24819\]?", "the cluster has too few slots for the stage; lower num_proc, or add executors or cores"),
    (r"(?P<said>ExecutorLostFailure \([^\n]*)", "{said}"),
    (r"(?:cancelled|interrupted)", "the stage was cancelled"),
)
_MOST_CHARACTERS = 500


def explain(text: str) -> str:
    """Return a sentence, without its period, for the text of Spark's error; for an unknown error, its first line."""
    for pattern, sentence in _KNOWN:
        if found := re.search(pattern, text):
            return sentence.format(**found.groupdict())[:_MOST_CHARACTERS].rstrip(". ")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it does not say why")
    return first[:_MOST_CHARACTERS].rstrip(". ")


class Stage:
    """Runs `job` in a thread, which `kind` makes. `cancel` ends the job from another thread."""

    def __init__(
        self, job: Callable[[], object], cancel: Callable[[], object], kind: Callable[..., threading.Thread]
    ) -> None:
        self._cancel, self._error = cancel, ""
        self._was_cancelled = False

        def work() -> None:
            try:
                job()
            except Exception as error:
                self._error = str(error)

        self._thread = kind(target=work)
        self._thread.daemon = True
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Return whether the stage has ended."""
        return not self._thread.is_alive()

    @property
    def reason(self) -> str:
        """Return why the stage failed, as a sentence without its period; "" if it did not fail or was cancelled."""
        return explain(self._error) if self._error and not self._was_cancelled else ""

    def await_end(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of the stage. Returns whether it has ended."""
        self._thread.join(seconds)
        return self.is_over

    def end(self, at_once: bool) -> None:
        """Wait for tasks that have nothing more to do. Cancel them if `at_once`, or if they do not end."""
        if not at_once and self.await_end(_END_SECONDS):
            return
        if not self.is_over:
            self._was_cancelled = True
            self._cancel()
            self.await_end(_CANCEL_SECONDS)
