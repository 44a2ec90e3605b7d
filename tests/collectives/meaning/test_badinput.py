"""Bad input gives a clear error on every rank that can know, never a hang or a wrong value, and the job goes on.

The cases are data (badinput.py); living ranks try them all (attempts.py), over shared memory and over TCP.
"""

import re

import attempts
import attempts_in_sets
import pytest
import shared
from badinput import mismatches
from living import settings_of
from misuses import MISUSES, ODD_BUT_RIGHT

pytestmark = pytest.mark.timeout(120)

SOON_S = 15.0  # generous: the machine may be busy
PLACES = [(2, "shared"), (2, "tcp"), (3, "shared"), (3, "mixed")]
places = pytest.mark.parametrize(("ranks", "mode"), PLACES, ids=str)


def run(ranks, mode, function, *arguments):
    return shared.run(ranks, function, settings_of(mode, ranks), *arguments, timeout=100)


def without_lines(text):
    """The message without the places in the program, "rank 0 (train.py:12) has ...", which depend on this file's."""
    return re.sub(r" \([^()]*\.py:\d+\)", "", text)


def test_there_are_300_cases():
    tried = sum(len(mismatches(range(ranks))) + len(MISUSES) + len(ODD_BUT_RIGHT) for ranks, _ in PLACES)
    assert len(mismatches(range(2))) + len(MISUSES) + len(ODD_BUT_RIGHT) >= 150  # each over shared memory and over TCP
    assert tried >= 300


@places
def test_who_disagrees_is_told_with_both_values(ranks, mode):
    answers = run(ranks, mode, attempts.disagree)
    wrong = []
    for number, case in enumerate(mismatches(range(ranks))):
        for rank, told in enumerate(answer[number] for answer in answers):
            wrong += judge_mismatch(case, rank, told.error, told.text)
            if not {"ValueError", "RuntimeError"} <= {*told.kinds} or not told.goes_on:
                wrong.append(f"{case}: rank {rank}: {told}")
            elif told.seconds > SOON_S:
                wrong.append(f"{case}: rank {rank} was told after {told.seconds:.1f} s")
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:5])


def judge_mismatch(case, rank, error, text):
    """The faults of a rank's error about a mismatch that it took part in."""
    lacking = [word for word in case.words() if word not in without_lines(text)]
    return [f"{case}: rank {rank} lacks {lacking}: {text}"] if error != "MismatchError" or lacking else []


@pytest.mark.parametrize("members", [[0, 1], [0, 2], [1, 2]], ids=str)
@pytest.mark.parametrize("mode", ["shared", "mixed", "tcp"])
def test_who_disagrees_in_a_process_set_is_told_there_alone(mode, members):
    answers = run(3, mode, attempts_in_sets.disagree_in_a_set, members)
    wrong = []
    for number, case in enumerate(attempts_in_sets.cases_among(members)):
        for rank, told in enumerate(answer[number] for answer in answers):
            if rank in members:
                wrong += judge_mismatch(case, rank, told.error, told.text)
            if not told.goes_on or (rank not in members and told.error):
                wrong.append(f"{case}: rank {rank}: {told}")
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("members", [[0, 1], [0, 2], [1, 2]], ids=str)
@pytest.mark.parametrize("mode", ["shared", "mixed", "tcp"])
def test_who_disagrees_while_another_rank_has_joined_is_told_and_a_joined_root_is_named(mode, members):
    answers = run(3, mode, attempts_in_sets.disagree_beside_a_joined_rank, members)
    cases = attempts_in_sets.cases_among(members)
    wrong = []
    for rank in members:
        *told, to_0, to_1, to_2 = answers[rank]
        assert len(told) == len(cases), f"rank {rank}: {told}"
        for case, (error, text) in zip(cases, told, strict=True):
            wrong += judge_mismatch(case, rank, error, text)
        for root, (error, text) in enumerate((to_0, to_1, to_2)):
            if (error != "") != (root not in members) or (error and not {f"rank {root}", "join"} <= words_of(text)):
                wrong.append(f"rank {rank}: a broadcast from rank {root}: {error} {text}")
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:5])


def words_of(text):
    """Those that name a joined root."""
    return {word for word in ("rank 0", "rank 1", "rank 2", "join") if word in text}


@pytest.mark.parametrize("mode", ["shared", "mixed", "tcp"])
def test_who_disagrees_about_process_sets_is_told_with_both_values(mode):
    for rank, answer in enumerate(run(3, mode, attempts_in_sets.disagree_about_sets)):
        for case, told in zip(attempts_in_sets.SET_CASES, answer, strict=True):
            assert told.error == "MismatchError" and told.goes_on, f"rank {rank}: {told}"
            for word in (f"rank 0 has {case.words[0]}", f"rank 1 has {case.words[1]}"):
                assert word in without_lines(told.text), f"rank {rank}: {told}"


@places
def test_misuse_is_an_error_that_leaves_the_ranks_in_step(ranks, mode):
    answers = run(ranks, mode, attempts.misuse)
    wrong = []
    for number, case in enumerate(MISUSES):
        for rank, told in enumerate(answer[number] for answer in answers):
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
            assert told.error == ("ArgumentError" if rank == 0 else ""), told
            assert rank != 0 or "'twice'" in told.text
            assert told.goes_on


@pytest.mark.parametrize(
    ("kind", "leaves"), [(kind, False) for kind in attempts.ABSENT] + [(kind, True) for kind in attempts.LEFT]
)
@pytest.mark.parametrize(("ranks", "mode"), [(2, "shared"), (3, "tcp")])
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
        assert kind in attempts.NAMELESS or "awaited" in told.text
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


@places
def test_a_forked_child_keeps_no_connection_open(ranks, mode):
    assert [text for texts in run(ranks, mode, attempts.what_a_forked_child_keeps_open) for text in texts] == []
