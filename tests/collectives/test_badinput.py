"""Bad input gives a clear error on every rank that can know, never a hang or a wrong value, and the job goes on.

The cases are data (badinput.py); living ranks try them all (attempts.py), over shared memory and over TCP.
"""

import re

import attempts
import pytest
from badinput import MISUSES, ODD_BUT_RIGHT, mismatches
from farandole.testing import world
from living import settings_of

pytestmark = pytest.mark.timeout(120)

SOON_S = 3.0  # generous: the machine may be busy
PLACES = [(2, "arenas"), (2, "tcp"), (3, "arenas"), (3, "mixed")]
places = pytest.mark.parametrize(("ranks", "mode"), PLACES, ids=str)


def run(ranks, mode, function, *arguments):
    return world(ranks).run(function, settings_of(mode, ranks), *arguments, timeout=100)


def without_lines(text):
    """The message without the places in the program, "rank 0 (train.py:12) has ...", which depend on this file's."""
    return re.sub(r" \([^()]*\.py:\d+\)", "", text)


def test_there_are_300_cases():
    tried = sum(len(mismatches(ranks)) + len(MISUSES) + len(ODD_BUT_RIGHT) for ranks, _ in PLACES)
    assert len(mismatches(2)) + len(MISUSES) + len(ODD_BUT_RIGHT) >= 150  # each over shared memory and over TCP
    assert tried >= 300


@places
def test_who_disagrees_is_told_with_both_values(ranks, mode):
    answers = run(ranks, mode, attempts.disagree)
    wrong = []
    for number, case in enumerate(mismatches(ranks)):
        for rank, told in enumerate(answer[number] for answer in answers):
            lacking = [word for word in case.words() if word not in without_lines(told.text)]
            if told.error != "MismatchError" or "ValueError" not in told.kinds or lacking or not told.goes_on:
                wrong.append(f"{case}: rank {rank} lacks {lacking}: {told}")
            elif told.seconds > SOON_S:
                wrong.append(f"{case}: rank {rank} was told after {told.seconds:.1f} s")
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:5])


@places
def test_misuse_is_an_error_on_that_rank_alone(ranks, mode):
    answers = run(ranks, mode, attempts.misuse)
    wrong = []
    for number, case in enumerate(MISUSES):
        for rank, told in enumerate(answer[number] for answer in answers):
            if rank != number % ranks:
                fine = told.error == ""
            else:
                named = all(word in told.text for word in case.words) and told.text
                fine = named and {kind.__name__ for kind in case.kinds} & set(told.kinds)
            if not fine or not told.goes_on:
                wrong.append(f"{case.label}: rank {rank}: {told}")
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:20])


@places
def test_what_looks_odd_works(ranks, mode):
    assert [text for texts in run(ranks, mode, attempts.odd_but_right) for text in texts] == []


@places
def test_another_order_is_told_or_tolerated(ranks, mode):
    for unnamed, named in run(ranks, mode, attempts.orders_cross):
        assert unnamed.text.startswith("['MismatchError', 'MismatchError']"), unnamed
        for word in ("rank 0 has allreduce", "rank 1 has allgather"):
            assert word in without_lines(unnamed.text)
        assert unnamed.goes_on
        assert named.error == "" and named.goes_on


@places
def test_a_name_twice_in_flight_is_refused(ranks, mode):
    for rank, answer in enumerate(run(ranks, mode, attempts.twice_in_flight)):
        for told in answer:
            assert told.error == ("ValueError" if rank == 0 else ""), told
            assert rank != 0 or "'twice'" in told.text
            assert told.goes_on


@pytest.mark.parametrize("leaves", [False, True], ids=["absent", "left"])
@pytest.mark.parametrize("kind", attempts.ABSENT)
@pytest.mark.parametrize(("ranks", "mode"), [(2, "arenas"), (3, "tcp")])
def test_who_does_not_come_is_named(ranks, mode, kind, leaves):
    answers = run(ranks, mode, attempts.one_never_calls, kind, leaves)
    for rank, (told, printed) in enumerate(answers):
        assert told.goes_on
        if rank == 0 and not leaves:  # warned before it became an error
            assert "warning" in printed and f"rank {ranks - 1}" in printed
        if rank == ranks - 1:
            continue
        assert told.error == ("PeerLostError" if leaves else "DeadlineError"), told
        assert f"rank {ranks - 1}" in told.text
        assert kind in ("barrier", "unnamed") or "awaited" in told.text
        assert told.seconds < SOON_S


@places
def test_use_after_shutdown_is_refused_and_init_twice_is_not(ranks, mode):
    assert [text for texts in run(ranks, mode, attempts.after_shutdown) for text in texts] == []


@places
def test_a_setting_that_cannot_be_is_named_with_its_value(ranks, mode):
    assert [text for texts in run(ranks, mode, attempts.bad_settings) for text in texts] == []


@places
def test_a_forked_child_is_told_and_the_rank_goes_on(ranks, mode):
    assert [text for texts in run(ranks, mode, attempts.in_forked_child) for text in texts] == []
