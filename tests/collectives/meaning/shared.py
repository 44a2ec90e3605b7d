"""The shared worlds, which are left as they were found: other suites may use them in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import living
from farandole.testing import world


def run(ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float) -> list[Any]:
    """Call the function on every rank of the shared world of this size, and take back what it has changed there."""
    answers = world(ranks).run(function, *arguments, timeout=timeout)
    world(ranks).run(take_back)
    return answers


def take_back() -> None:
    living.change_sets([])
    living.unsettle()
