"""Calls on a Ray of two nodes that fail: tests/support/failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lab import lab_fixture  # noqa: F401  (a fixture)
from test_cluster import run  # noqa: F401  (a fixture)

LIMIT_S = 3000.0
pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def test_the_culprit_is_named_and_nothing_is_left(run: Callable[..., str]) -> None:  # noqa: F811
    run("failing.py", limit_s=LIMIT_S)
