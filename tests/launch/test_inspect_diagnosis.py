"""The sentence of `farandole inspect`, by what the ranks have recorded. No processes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from farandole.observe import inspect, stacks
from farandole.observe.diagnosis import Kind, Rank, diagnose
from farandole.observe.processes import Activity, Look, activity
from farandole.observe.records import State
from inspection_samples import NOW_NS, done, operation, rank

GRAD, FORMER = operation("grad", 2), done("grad", 1)
WAITED = "have waited 5.0 s in allreduce 'grad' (train.py:9)"
LAST = "its last operation, allreduce 'grad' (train.py:9), ended 6.0 s ago"
TWICE = done("loss", 1), done("accuracy", 1), done("loss", 2), done("accuracy", 2)
SETS = done("a", process_set=1), done("b", process_set=2)
LEFT, ENDED = State.LEFT, State.ENDED
ADDED = operation("process set g", kind="add_process_set", shapes="(0, 2)")
REMOVED = operation("removal of process set 1", kind="remove_process_set", shapes="(1,)")

CASES: dict[str, tuple[Sequence[Rank], Kind, tuple[int, ...], str]] = {
    "nobody waits": (
        [rank(0, FORMER), rank(1, FORMER)],
        Kind.MOVES, (), "no rank waits for another: the latest operation was allreduce 'grad' (train.py:9)",
    ),
    "a wait of a moment is no news": (
        [rank(0, FORMER, operation("grad", 2, ago_s=0.4)), rank(1, FORMER)],
        Kind.MOVES, (), "no rank waits for another",
    ),
    "nothing was begun": ([rank(0), rank(1)], Kind.MOVES, (), "ranks 0, 1 have begun no operation yet"),
    "one is late, and computes": (
        [rank(0, FORMER, GRAD), rank(1, FORMER, does=Activity.COMPUTING), rank(2, FORMER, GRAD)],
        Kind.LATE, (1,), f"rank 1 (pid 101) has not called allreduce 'grad'; {LAST}; it computes; ranks 0, 2 {WAITED}",
    ),
    "a set is added by its members alone": (
        [rank(0, FORMER, ADDED), rank(1, FORMER), rank(2, FORMER)],
        Kind.LATE, (2,), "rank 2 (pid 102) has not called add_process_set 'process set g'",
    ),
    "a set is removed by its members alone": (
        [rank(0, *SETS, REMOVED), rank(1, FORMER), rank(2, *SETS)],
        Kind.LATE, (2,), "rank 2 (pid 102) has not called remove_process_set",
    ),
    "several are late": (
        [rank(0, FORMER, GRAD), rank(1), rank(2, FORMER)],
        Kind.LATE, (1, 2), "ranks 1, 2 have not called allreduce 'grad'; rank 1 has begun no operation",
    ),
    "one is stopped": (
        [rank(0, FORMER, GRAD), rank(1, FORMER, does=Activity.STOPPED), rank(2, FORMER)],
        Kind.STOPPED, (1,), "rank 1 (pid 101) has not called allreduce 'grad'; " + LAST + "; it is stopped by a signal",
    ),
    "one is stopped, and nobody here waits": (
        [rank(2, FORMER, does=Activity.STOPPED)],
        Kind.STOPPED, (2,), "rank 2 (pid 102) is stopped by a signal or a debugger; " + LAST,
    ),
    "one was killed": (
        [rank(0, FORMER, GRAD), rank(1, FORMER, does=Activity.GONE), rank(2, FORMER, GRAD)],
        Kind.LOST, (1,), f"rank 1 (pid 101) was lost: its process ended without leaving; {LAST}",
    ),
    "one was killed inside of an operation": (
        [rank(0, GRAD), rank(1, GRAD, does=Activity.GONE)],
        Kind.LOST, (1,), "it was in allreduce 'grad' (train.py:9)",
    ),
    "the job has failed": (
        [rank(number, state=ENDED, reason="shapes differ", culprit=2) for number in (0, 1)],
        Kind.FAILED, (2,), "ranks 0, 1 ended with an error: shapes differ",
    ),
    "one left early": (
        [rank(0, GRAD), rank(1, *[done("grad", 1)], state=LEFT, does=Activity.GONE)],
        Kind.LEFT, (1,), "rank 1 (pid 101) left the job; " + LAST + "; rank 0 has waited 5.0 s",
    ),
    "one left twelve batches early": (
        [rank(0, operation("grad", 13)), rank(1, FORMER, state=LEFT)],
        Kind.LEFT, (1,), "rank 1 (pid 101) left the job after 12 calls fewer of allreduce 'grad'",
    ),
    "different branches": (
        [rank(0, GRAD), rank(1, operation("loss", site="eval.py:3")), rank(2, GRAD)],
        Kind.DIVERGED, (1,),
        "ranks 0, 2 wait in allreduce 'grad' (train.py:9), but rank 1 (pid 101) waits in allreduce 'loss' (eval.py:3): "
        "they take different branches",
    ),
    "another kind of the same name": (
        [rank(0, FORMER, operation("x", 1)), rank(1, FORMER, operation("y", 1, kind="broadcast"))],
        Kind.DIVERGED, (1,), "rank 1 (pid 101) waits in broadcast 'y' (train.py:9)",
    ),
    "an epoch of one is shorter": (
        [rank(0, operation("grad", 13)), rank(1, FORMER, operation("metrics"))],
        Kind.DIVERGED, (1,), "rank 1 has called the former 12 times fewer, so it has fewer batches",
    ),
    "unnamed operations of different kinds": (
        [rank(0, operation("", 4)), rank(1, operation("", 4, kind="barrier"))],
        Kind.DIVERGED, (1,),
        "rank 0 waits in unnamed allreduce 4 (train.py:9), but rank 1 (pid 101) waits in unnamed barrier 4",
    ),
    "two process sets": (
        [
            rank(0, *SETS, operation("a", 2, process_set=1), size=2),
            rank(1, *SETS, operation("b", 2, process_set=2), size=2),
        ],
        Kind.SETS, (1,), "they use two process sets in different orders",
    ),
    "the rank that takes another branch came first": (
        [rank(0, FORMER, GRAD), rank(1, FORMER, operation("test", 1, ago_s=6)), rank(2, FORMER, GRAD)],
        Kind.DIVERGED, (1,),
        "ranks 0, 2 wait in allreduce 'grad' (train.py:9), but rank 1 (pid 101) waits in allreduce 'test' (train.py:9)",
    ),
    "of two ranks the one that calls in a new order": (
        [rank(0, *TWICE, operation("loss", 3)), rank(1, *TWICE, operation("accuracy", 3, ago_s=6))],
        Kind.DIVERGED, (1,), "rank 0 waits in allreduce 'loss' (train.py:9), but rank 1 (pid 101) waits in allreduce",
    ),
    "of two ranks the one that calls in a new order, and comes last": (
        [rank(0, *TWICE, operation("loss", 3)), rank(1, *TWICE, operation("accuracy", 3, ago_s=4))],
        Kind.DIVERGED, (1,), "rank 0 waits in allreduce 'loss' (train.py:9), but rank 1 (pid 101) waits in allreduce",
    ),
    "two process sets, and the rank that swaps them came first": (
        [
            *[rank(number, *SETS, operation("a", 2, process_set=1), size=4) for number in (0, 1)],
            rank(2, *SETS, operation("b", 2, process_set=2, ago_s=6), size=4),
            rank(3, done("b", process_set=2), operation("b", 2, process_set=2, ago_s=7), size=4),
        ],
        Kind.SETS, (2,), "ranks 0, 1 wait in allreduce 'a' of process set 1 (train.py:9) and rank 2 (pid 102) waits in",
    ),
    "two process sets, and ranks of another host that may have swapped them": (
        [
            rank(0, done("b", process_set=2), operation("b", 2, process_set=2), size=4),
            rank(1, *SETS, operation("a", 2, process_set=1), size=4),
        ],
        Kind.UNSEEN, (), "let all ranks that are in both begin with the same; look at the hosts of ranks 2, 3",
    ),
    "the last one has come only now": (
        [rank(0, FORMER, GRAD), rank(1, FORMER, operation("grad", 2, ago_s=-0.5)), rank(2, FORMER, GRAD)],
        Kind.MOVES, (), "no rank waits for another",
    ),
    "the gradients of one come in another order": (
        [rank(0, operation("a"), operation("b")), rank(1, operation("c", ago_s=0.1)), rank(2, operation("a"))],
        Kind.LATE, (1,), "rank 1 (pid 101) has not called allreduce 'a'; it was in allreduce 'c'",
    ),
    "a rank that is not in the set is not missed": (
        [rank(0, operation("a", process_set=1)), rank(1, operation("a", process_set=1)), rank(2, FORMER)],
        Kind.DATA, (), "ranks 0, 1 have waited 5.0 s in allreduce 'a' of process set 1 (train.py:9), and all have come",
    ),
    "a rank that has joined is not missed": (
        [rank(0, FORMER, GRAD), rank(1, operation("", 0, kind="join")), rank(2, FORMER, does=Activity.COMPUTING)],
        Kind.LATE, (2,), "rank 2 (pid 102) has not called",
    ),
    "more operations in flight of the late rank": (
        [rank(0, operation("a"), operation("b", ago_s=4)), rank(1, operation("b", ago_s=4.5))],
        Kind.LATE, (1,), "rank 1 (pid 101) has not called allreduce 'a'; it was in allreduce 'b'",
    ),
    "all have come, one is stopped": (
        [rank(0, GRAD), rank(1, GRAD, does=Activity.STOPPED)],
        Kind.STOPPED, (1,), "rank 1 (pid 101) is stopped by a signal or a debugger; ranks 0, 1 have waited",
    ),
    "the late ranks are on other hosts": (
        [rank(0, GRAD, size=8), rank(1, GRAD, size=8)],
        Kind.UNSEEN, (), "all ranks of this host have come: look at the hosts of ranks 2-7",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_sentence(case: str) -> None:
    ranks, kind, culprits, sentence = CASES[case]
    found = diagnose([*ranks][::-1], NOW_NS)
    assert (found.kind, found.culprits) == (kind, culprits), found.sentence
    assert sentence in found.sentence
    assert not found.sentence.endswith(".") and "\n" not in found.sentence


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Look("S", 0, 0, 0), Look("", 0, 0, 0), Activity.GONE),
        (Look("S", 0, 0, 0), Look("ZX", 0, 0, 100), Activity.GONE),
        (Look("S", 0, 0, 0), Look("TT", 0, 0, 100), Activity.STOPPED),
        (Look("R", 0, 0, 0), Look("RS", 90, 5, 100), Activity.COMPUTING),
        (Look("R", 0, 0, 0), Look("RR", 20, 80, 100), Activity.NOT_SCHEDULED),
        (Look("D", 0, 0, 0), Look("DS", 1, 0, 100), Activity.ON_STORAGE),
        (Look("S", 0, 0, 0), Look("SS", 1, 0, 100), Activity.SLEEPING),
    ],
)
def test_what_a_process_does(before: Look, after: Look, expected: Activity) -> None:
    assert activity(before, after) is expected


ANSWER = """[{"thread_name": "MainThread", "thread_id": 1, "active": true, "owns_gil": true,
 "frames": [{"name": "load", "filename": "/a/train.py", "short_filename": "train.py", "line": 4}]}]"""


def test_text_and_json_tell_the_sentence_first() -> None:
    ranks = [rank(0, FORMER, GRAD), rank(1, FORMER)]
    found = diagnose(ranks, NOW_NS)
    text = inspect.as_text("ab12", found, ranks, {0: "py-spy cannot look", 1: stacks.threads(ANSWER)}, NOW_NS)
    assert text.startswith("rank 1 (pid 101) has not called")
    for line in (
        "job ab12: 2 of 3 ranks on this host",
        "  in allreduce 'grad' (train.py:9), float32 (3,) for 5.0 s",
        "  py-spy cannot look",
        "  thread MainThread (holds the GIL):",
        "    train.py:4 load",
    ):
        assert line in text.splitlines()
    document = json.loads(inspect.as_json_text("ab12", found, ranks, {1: stacks.threads(ANSWER)}, NOW_NS))
    assert document["sentence"] == found.sentence and document["culprits"] == [1]
    assert document["ranks"][0]["operations"][-1]["submitted_s_ago"] == 5.0
    assert document["ranks"][1]["stacks"][0]["frames"] == ["train.py:4 load"]
