"""Sentences about what a driver waits for."""

from __future__ import annotations

import sys
import time

_AGAIN_SECONDS = 5.0  # between two sentences about the same wait


class Teller:
    """Writes a sentence where the user sees it: after `quiet_s`, then when it is another one, at most now and then."""

    def __init__(self, quiet_s: float = 1.0) -> None:
        self._said, self._due = "", time.monotonic() + quiet_s

    def __call__(self, sentence: str) -> None:
        now = time.monotonic()
        if now >= self._due and sentence:
            self._said, self._due = sentence, now + _AGAIN_SECONDS
            print(f"farandole: {sentence}", file=sys.stderr, flush=True)
