"""Jobs that fail on this machine, seen from outside: tests/support/failures. FARANDOLE_LONG=1: all, in all access."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failures import ranks, refusals, users
from failures.case import Case
from failures.judge import Told, complaints
from failures.run import Check, check, rows  # noqa: F401  (a fixture)

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(("case", "way"), rows([*ranks.CASES, *users.CASES, *refusals.CASES], on_hosts=False))
def test_the_culprit_is_named_and_nothing_is_left(case: Case, way: str, check: Check) -> None:  # noqa: F811
    check(case, way)


def test_the_judge_finds_what_is_wrong() -> None:
    case = Case("", "sys.exit(3)", 3, show="a line", once="farandole: ", hide="Traceback")
    right = Told(3, "[1] a line\n", "farandole: rank 1 on localhost (pid 9) failed: exit code 3.\n", is_call=False)
    assert list(complaints(case, right)) == []
    other = "farandole: rank 2 on h9 failed\n[1] Traceback\n[1] farandole: rank 1 on localhost: exit code 3"
    wrong = replace(right, code=1, out="", err=other, left=["7 sleep"], caller="changed")
    assert list(complaints(replace(case, say="exit code 3"), wrong)) == [
        "the exit code is 1, not 3",
        "in the caller: changed",
        "rank 2 is blamed, not (1,)",
        "h9 is blamed, not localhost",
        "the launcher does not say 'exit code 3'",
        "nobody shows 'a line'",
        "'Traceback' is shown",
        "'farandole: ' is shown 2 times",
        "left behind: 7 sleep",
    ]
    call = replace(right, is_call=True, raised="KeyError Exception", err="", blamed=1, message="'lr'")
    assert list(complaints(case, call)) == [
        "KeyError Exception is raised, not FarandoleError",
        "'farandole: ' is shown 0 times",
    ]
