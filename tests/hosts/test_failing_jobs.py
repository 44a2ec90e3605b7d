"""Jobs that fail over the hosts of a lab, seen from outside: tests/support/failures. FARANDOLE_LONG=1: all of them."""

from __future__ import annotations

import pytest
from failures import ranks, refusals, users
from failures.case import Case
from failures.run import Check, check, rows  # noqa: F401  (a fixture)

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(("case", "way"), rows([*ranks.CASES, *users.CASES, *refusals.CASES], on_hosts=True))
def test_the_culprit_is_named_and_nothing_is_left(case: Case, way: str, check: Check) -> None:  # noqa: F811
    check(case, way)
