"""When a job is ended, whom it blames. Pure."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest
from farandole._start.rank_records import Parting
from farandole.launch.ending import Ending
from farandole.launch.head.failure_report import Failure, exit_code, first_failure, job_ended
from farandole.launch.placement import Placement
from farandole.launch.rank_exit import Death


def test_a_failure_gives_the_others_a_pause_then_term_then_kill_within_the_grace() -> None:
    ending = Ending(5.0)
    ending.rank_failed(10.0)
    assert ending.wait_at_most(10.0) == 1.0
    assert [ending.term_due(now) for now in (10.9, 11.0, 11.1)] == [False, True, False]
    assert [ending.kill_due(now) for now in (14.4, 14.5, 14.6)] == [False, True, True]
    assert ending.exit_code is None


def test_a_short_grace_shortens_the_pause() -> None:
    ending = Ending(0.4)
    ending.rank_failed(0.0)
    assert ending.term_due(0.2) and ending.kill_due(0.37)


def test_an_interrupt_is_passed_on_once_and_kills_after_the_grace() -> None:
    ending = Ending(5.0)
    assert ending.interrupted(signal.SIGINT, 10.0)
    assert not ending.interrupted(signal.SIGINT, 10.1)  # the same key, seen twice
    assert not ending.kill_due(14.9) and ending.kill_due(15.0)
    assert ending.exit_code == 130


def test_a_second_interrupt_kills() -> None:
    ending = Ending(5.0)
    ending.interrupted(signal.SIGINT, 10.0)
    assert not ending.interrupted(signal.SIGINT, 10.5)
    assert ending.kill_due(10.5)


def test_a_second_term_does_not_kill() -> None:
    ending = Ending(5.0)
    ending.interrupted(signal.SIGTERM, 10.0)
    assert not ending.interrupted(signal.SIGTERM, 11.0)
    assert not ending.kill_due(14.9)


def test_an_interrupt_while_a_failure_ends_the_job_kills_and_keeps_the_verdict() -> None:
    ending = Ending(5.0)
    ending.rank_failed(10.0)
    assert not ending.interrupted(signal.SIGINT, 10.5)
    assert ending.kill_due(10.5) and ending.exit_code is None


def test_what_ranks_left_running_is_killed_soon_unless_the_user_interrupted() -> None:
    normal, interrupted = Ending(5.0), Ending(5.0)
    normal.ranks_gone(10.0)
    interrupted.interrupted(signal.SIGTERM, 10.0)
    interrupted.ranks_gone(10.5)
    assert normal.kill_due(11.0)
    assert not interrupted.kill_due(14.9)


def test_the_launcher_gone_kills_at_once() -> None:
    ending = Ending(5.0)
    ending.launcher_gone(10.0)
    assert ending.kill_due(10.0) and not ending.given_up(12.9) and ending.given_up(13.0)


def death(rank: int, code: int, seen_at: float, asked: bool = False, **more: Any) -> Death:
    return Death(Placement(rank, 4, "localhost", rank, 4, 0, 1), 100 + rank, code, seen_at, seen_at, asked, **more)


def raised(at_s: float, blamed: int | None = None) -> Parting:
    return Parting(True, at_s, blamed)


def left(at_s: float, blamed: int | None = None) -> Parting:
    return Parting(False, at_s, blamed)


@pytest.mark.parametrize(
    ("deaths", "blamed"),
    [
        ([], None),
        ([death(0, 0, 1.0)], None),
        ([death(0, 0, 1.0), death(2, 3, 2.0), death(1, 1, 2.01)], 2),
        ([death(1, 1, 2.0), death(2, -9, 2.05)], 2),
        ([death(1, 1, 2.0), death(2, -9, 2.2)], 1),
        ([death(3, -9, 2.0), death(2, -11, 2.05)], 3),
        ([death(1, -15, 2.0, asked=True), death(2, 1, 3.0)], 2),
    ],
)
def test_of_silent_ranks_the_first_is_blamed_and_of_those_together_one_that_was_killed(
    deaths: list[Death], blamed: int | None
) -> None:
    found = first_failure(deaths)
    assert (found and found.culprit.placement.rank) == blamed


@pytest.mark.parametrize(
    ("deaths", "blamed", "code"),
    [
        # rank 1 raised, and its process ended later than those that failed because of it
        ([death(0, 1, 2.0, report=raised(1.9, 1)), death(1, 1, 3.0, report=raised(1.5))], 1, 1),
        ([death(0, 1, 2.0, report=raised(1.9, 1)), death(1, 7, 3.0, report=left(1.5))], 1, 7),
        # a chain: rank 0 failed because of 2, and 2 because of 1, which was killed
        ([death(0, 1, 2.0, report=raised(1.9, 2)), death(1, -9, 2.1), death(2, 1, 2.2, report=raised(2.0, 1))], 1, 137),
        # rank 1 returned early
        ([death(1, 0, 1.0, report=left(0.5)), death(0, 3, 2.0, report=left(1.9, 1))], 1, 3),
        # a framework that aborts after rank 1 has raised
        ([death(0, -6, 1.6), death(1, 1, 3.0, report=raised(1.5))], 1, 1),
        # rank 1 raised, and had to be killed
        ([death(0, 1, 2.0, report=raised(1.9, 1)), death(1, -9, 6.0, asked=True, report=raised(1.5))], 1, 1),
        # ranks 0 and 2 waited for rank 1 in vain, which the launcher then ended
        (
            [
                death(2, 3, 2.1, report=Parting(True, 2.0, 1, awaited=True)),
                death(0, 4, 2.2, report=Parting(True, 1.9, 1, awaited=True)),
                death(1, -15, 2.5, asked=True),
            ],
            1,
            4,
        ),
        # they blame each other: the first counts
        ([death(0, 1, 2.0, report=raised(1.9, 1)), death(1, 4, 3.0, report=raised(1.5, 0))], 1, 4),
    ],
)
def test_what_ranks_say_counts_more_than_the_order_of_deaths(deaths: list[Death], blamed: int, code: int) -> None:
    found = first_failure(deaths)
    assert found is not None
    assert (found.culprit.placement.rank, found.exit_code) == (blamed, code)


def report(failure: Death, tail: list[bytes], is_above: bool = False) -> str:
    return job_ended(Failure(failure, 1), tail, None, is_above).on_screen(f"[{failure.placement.rank}]")


def test_exit_codes_are_those_of_a_shell() -> None:
    assert [exit_code(death(0, code, 0.0)) for code in (0, 3, -9)] == [0, 3, 137]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (3, "failed first: exit code 3 after 12.3 s"),
        (-9, "failed first: killed by SIGKILL (signal 9)"),
        (-40, "killed by SIGRTMIN+"),
        (-11, "PYTHONFAULTHANDLER"),
        (-7, "/dev/shm"),
    ],
)
def test_the_verdict_says_who_how_and_what_next(code: int, text: str) -> None:
    lines = report(death(2, code, 12.34), [b"one", b"\r 1%\r 2%"])
    assert text in lines
    assert lines.startswith("farandole: rank 2 on localhost (pid 102) failed")
    assert lines.splitlines()[1:3] == ["[2] one", "[2]  2%"]


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (death(1, 7, 3.0, report=left(1.5)), "failed first: exit code 7 after 1.5 s"),
        (death(1, 0, 3.0, report=left(1.5)), "ended first, with exit code 0 after 1.5 s, while others still needed it"),
        (
            death(1, 0, 0.5, joined=False),
            "with exit code 0 after 0.5 s and without calling init(), while others waited",
        ),
        (
            death(1, -9, 6.0, asked=True, report=raised(1.5)),
            "raised an exception after 1.5 s, and its process did not end",
        ),
        (death(1, -15, 6.0, asked=True), "or called shutdown(), after 6.0 s, while others still needed it"),
    ],
)
def test_the_verdict_says_what_happened(ended: Death, text: str) -> None:
    assert text in report(ended, [])


def test_lines_that_stand_right_above_are_not_repeated() -> None:
    assert report(death(2, 1, 1.0), [b"Traceback"], is_above=True).splitlines() == [
        "farandole: rank 2 on localhost (pid 102) failed first: exit code 1 after 1.0 s; its last lines are above."
    ]


def test_more_output_is_offered_where_there_is_more() -> None:
    assert "--output-dir" not in report(death(0, 1, 0.2), [b"line"] * 19)
    assert "--output-dir" in report(death(0, 1, 0.2), [b"line"] * 20)
    assert "--output-dir" not in report(death(0, 1, 0.2), [b"line"] * 20, is_above=True)


def test_a_python_without_our_packages_is_explained() -> None:
    def advice(package: str) -> str:
        line = f"ModuleNotFoundError: No module named '{package}'".encode()
        return report(death(0, 1, 0.2), [b"Traceback", line]).splitlines()[-1]

    here = f"farandole is installed for {sys.executable}, and the ranks ran another Python: leave out the word python"
    assert here in advice("farandole")
    assert here.replace("farandole", "psutil", 1) in advice("psutil"), "what the framework is, say"
    assert advice("farandole_nothing") == f"farandole: install it: {sys.executable} -m pip install farandole-nothing"
    assert advice("somebody_elses").startswith("[0] ModuleNotFoundError")


def test_who_ended_well_before_the_failure_is_named() -> None:
    failure = death(0, 1, 120.0)
    found = first_failure([death(1, 0, 0.41), failure, death(2, 0, 121.0), death(3, 0, 122.0, asked=True)])
    assert found is not None
    assert [each.placement.rank for each in found.ended] == [1]
    last = job_ended(found, [], None).sentences[-1]
    assert last.startswith("rank 1 had ended before, with exit code 0 after 0.4 s; if others still needed it")
    assert last.endswith("did it return early, or never call init()?")


def test_of_many_that_ended_well_some_are_named() -> None:
    before = [death(rank, 0, 1.0) for rank in range(1, 12)]
    text = job_ended(Failure(death(0, 1, 9.0), 1, before), [], None).text
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3 more had ended" in text
    text = job_ended(Failure(death(0, 1, 9.0), 1, before[:2]), [], None).text
    assert "ranks 1 and 2 had ended before, with exit code 0 (the first of them after 1.0 s); if" in text
