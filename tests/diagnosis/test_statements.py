"""Sentences are read and judged as a user would; no job runs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from beside_ddp import words
from drawn import BY_NAME, FRAMEWORKS, KINDS, Fault, draw
from statements import LAUNCHER, Said, judge, missed, of_inspect, of_launcher, precision, rows, table

KILLED = "farandole: rank 3 on localhost (pid 71) failed first: killed by SIGKILL (signal 9) after 2.0 s; it printed"


def fault(kind: str, victim: int = 3, ranks: int = 4, **fields: object) -> Fault:
    drawn = draw(0, 0, ["numpy"], [kind])
    return replace(drawn, ranks=ranks, hosts=1, victims=(victim,), **fields)  # type: ignore[arg-type]


def result(kind: str, *said: Said, **fields: object) -> str:
    return judge(fault(kind, **fields), BY_NAME[kind], said).result


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (KILLED, "killed"),
        ("farandole: rank 3 on h1 (pid 7) failed first: exit code 1 after 2.0 s; its last lines:", "raised"),
        ("farandole: rank 3 on h1 (pid 7) ended first, with exit code 0 after 1.0 s, while others still", "left"),
        ("farandole: rank 3 on h1 (pid 7) was lost first after 9.0 s: ssh ended", "network"),
        ("farandole: rank 3 makes the others wait for 17% of the time (over 2 s and 20 steps)", "slower"),
        ("farandole: rank 3 on h1 makes the others wait for 17% of the time", "slower"),
        ("farandole: rank 3 (pid 7) has not called allreduce 'g'; it computes; ranks 0-2 have waited 5.1 s in", "late"),
        ("farandole: rank 3 (pid 7) has not called allreduce 'g'; it is stopped by a signal or a", "stopped"),
        ("farandole: rank 3 (pid 7) left the job; its last operation, ... ; ranks 0-2 have waited 5.0 s", "left"),
        ("farandole: ranks 0-2 wait in allreduce 'a', but rank 3 (pid 7) waits in allreduce 'b': they", "diverged"),
        (
            "farandole: rank 0 waits in allreduce 'a' of process set 1 and rank 3 (pid 7) waits in allreduce 'b': "
            "they use two process sets in different orders",
            "process sets",
        ),
        ("farandole: all of its output is in out/rank.3.log.", ""),
        ("[3] farandole: rank 3 on h1 (pid 7) failed first: exit code 1", ""),
        ("[3] RuntimeError: no such sample", "raised"),
        ("[3 h1] farandole.ArgumentError: no", "raised"),
        ("[3] print: RuntimeError: no such sample", ""),
        ("[0] farandole: rank 0 stops at a.py:3: rank 3 (host vm, pid 7) died; look at rank 3's output first", "lost"),
        (
            "[0 h0] farandole: rank 0 stops at a.py:3: the connection to rank 3 (host h1, pid 7) was lost; it",
            "network",
        ),
        ("[0] farandole: rank 0 stops at a.py:3: rank 3 (host vm, pid 7) has left the job (its", "left"),
    ],
)
def test_the_launchers_sentences(line: str, cause: str) -> None:
    accused = [said for said in of_launcher([(1.0, line)]) if said.accuses]
    assert [(said.cause, said.culprits) for said in accused] == ([(cause, (3,))] if cause else [])


@pytest.mark.parametrize(("agree", "culprits"), [("", (1, 0)), ("; 3 of 4 ranks agree with rank 1", (0,))])
def test_ranks_that_disagree_are_named_by_their_error(agree: str, culprits: tuple[int, ...]) -> None:
    sides = "rank 1 (a.py:2) has (2,), rank 0 (a.py:2) has (3,)"
    error = f"farandole.MismatchError: allreduce 'l': the ranks disagree about its shape: {sides}{agree}; call it"
    verdict = "farandole: rank 2 on localhost (pid 7) failed first: exit code 1 after 2.0 s; its last lines are above."
    said = of_launcher([(1.0, f"[2] {error}"), (1.5, verdict)])
    assert [(each.at, each.cause, each.culprits) for each in said] == [
        (1.0, "mismatch", culprits),
        (1.5, "mismatch", culprits),
    ]


def test_several_ranks_in_a_sentence() -> None:
    lines = ["ranks 1-3, 5 have not called allreduce 'g'", "ranks 1 on h1, 2 on h10 make the others wait for 9%"]
    said = of_launcher((1.0, f"farandole: {line}; ranks 0, 4 have waited") for line in lines)
    assert [each.culprits for each in said] == [(1, 2, 3, 5), (1, 2)]
    (link,) = of_launcher([(1.0, "farandole: the network from rank 1 on h0 to rank 2 on h1 is slow: 12.5 MB/s")])
    assert (link.cause, link.culprits) == ("network", (1, 2))
    (data,) = of_launcher([(1.0, "farandole: ranks 0, 1 have waited 6 s, and all have come: its data do not arrive")])
    assert (data.cause, data.culprits) == ("network", ())


def test_answers_of_inspect_that_repeat_are_one() -> None:
    late = {"kind": "late", "culprits": [3], "sentence": "rank 3 ..."}
    said = of_inspect([{"at": 0.5}, {"at": 1.0, **late}, {"at": 1.5, **late}, {"at": 2.0, "kind": "unseen"}])
    assert [(each.at, each.cause) for each in said] == [(0.5, ""), (1.0, "late"), (2.0, "")]


def test_a_verdict_is_the_first_accusation_and_a_later_one_can_spoil_it() -> None:
    right = Said(0.5, LAUNCHER, "killed", (3,), KILLED)
    assert result("kill", right) == "right" and result("kill") == "silent"
    assert result("kill", replace(right, at=-1.0)) == "wrong", "before the fault"
    assert result("kill", replace(right, cause="left")) == "wrong"
    assert result("kill", right, replace(right, at=1.0, culprits=(2, 3))) == "wrong"
    assert result("kill", replace(right, cause="failed", at=0.1)) == "silent", "which names no cause"
    assert result("flat") == "right" and result("flat", right) == "wrong"


def test_a_fault_between_two_ranks_is_that_of_either() -> None:
    diverged = Said(1.0, "inspect", "diverged", (0,), "ranks 0 ...")
    assert result("order", diverged) == "wrong"
    assert result("order", diverged, ranks=2, victim=1) == "right"
    assert result("order", replace(diverged, culprits=(0, 1, 2))) == "wrong"


def test_a_link_has_two_ends() -> None:
    link = Said(3.0, LAUNCHER, "network", (1, 3), "the network from rank 1 ...")
    on_three_hosts = replace(fault("slow link"), hosts=4)
    assert judge(on_three_hosts, BY_NAME["slow link"], [link]).result == "right"
    assert judge(on_three_hosts, BY_NAME["slow link"], [replace(link, culprits=(1, 2))]).result == "wrong"


def test_a_busy_rank_0_may_be_named_only_to_who_asks() -> None:
    late = Said(1.0, "inspect", "late", (0,), "rank 0 ...")
    assert result("checkpoints", late) == "right"
    assert result("checkpoints", replace(late, source=LAUNCHER)) == "wrong"
    assert result("checkpoints", replace(late, culprits=(1,))) == "wrong"
    assert result("flat", late) == "wrong"
    assert result("flat", replace(late, text="rank 0 ...; it is not scheduled: others use its processors")) == "right"


def test_the_words_of_torchrun() -> None:
    """A user reads the errors of ranks, whose tracebacks quote the program, and the summary."""
    lines = [
        (-1.0, "W1126 09:24:17 Setting OMP_NUM_THREADS"),
        (0.1, "[rank0]:     self.reduce(name, size)  # SIGKILL"),
        (0.2, "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Connection reset by peer"),
        (0.3, "  rank      : 0 (local_rank: 0)"),
        (0.3, "Root Cause (first observed failure):"),
        (0.3, "  rank      : 3 (local_rank: 3)"),
    ]
    found = words(fault("kill"), lines)
    assert (found["first_s"], found["root"], found["culprit"], found["cause"]) == (0.2, 3, True, False)
    assert words(fault("kill"), [*lines, (0.4, "  traceback : Signal 9 (SIGKILL) received by PID 7")])["cause"]
    assert words(fault("stop"), lines[:1])["first_s"] is None


def test_draws_are_repeatable_and_reach_everything() -> None:
    drawn = [draw(7, number, FRAMEWORKS) for number in range(800)]
    assert drawn[::-1] == [draw(7, number, FRAMEWORKS) for number in reversed(range(800))]
    assert set(Counter(each.kind for each in drawn).values()) == {800 // len(KINDS)}
    by_framework = {(each.kind, each.framework) for each in drawn}
    assert len(by_framework) == len(KINDS) * len(FRAMEWORKS)
    assert {each.hosts for each in drawn} == {1, 2, 3, 4} and {each.ranks for each in drawn} == set(range(2, 9))
    for each in drawn:
        json.dumps(each.plan())
        assert sum(each.per_host) == each.ranks and each.victims[0] in each.ranks_of(each.victim_host)
        assert all(each.victims[0] in ranks and len(ranks) < each.ranks for ranks in each.sets)
        assert BY_NAME[each.kind].is_flat or set(each.victims) <= each.blamed


def test_the_table_and_its_targets() -> None:
    record = {"kind": "kill", "result": "right", "seconds": 0.5, "cause": "killed"}
    records = [
        record,
        {**record, "seconds": 4.0},
        {"kind": "stop", "result": "wrong", "seconds": 1.0, "cause": "killed"},
    ]
    found = rows(KINDS, records)
    assert precision(found[0], found) == pytest.approx(2 / 3)
    assert "| kill | 2 | 2 | 0 | 0 | 4.0 | 4.0 | 0.67 | 1.00 |" in table(found)
    assert missed(found) == ["2 of 3 right, not 98%", "the median is 4.0 s, not 2.0 s"]
    assert missed(rows(KINDS, [record] * 98)) == []
