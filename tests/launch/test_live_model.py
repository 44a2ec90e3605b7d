"""Frames of the live page: what they say, and that they stay small."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from farandole.observe.diagnosis import Rank
from farandole.observe.live.figures import figures
from farandole.observe.live.metrics import arrivals_of_ranks, as_text
from farandole.observe.live.model import MOST_OPERATIONS, Model, diagnose_with_waits
from farandole.observe.live.server import History
from farandole.observe.processes import Activity
from farandole.observe.records import Link
from farandole.observe.waits import measure, step_ns
from inspection_samples import NOW_NS, SECOND, done, operation, rank

MOST_BYTES = 512 << 10  # of a frame
START_NS = NOW_NS - 10 * SECOND


def steps(number: int, count: int, *, size: int, names: int = 1, late_s: float = 0.0, begun: int = 0) -> Rank:
    """A rank that has taken steps of a tenth of a second; it comes late to each operation, which ends 30 ms after."""
    operations = []
    for step in range(count):
        for name in range(names):
            ago = (count - step) * 0.1 - name * 0.1 / names
            made = operation(
                f"grad{name}", step + 1, ago_s=ago - late_s, ended_ago_s=ago - 0.03, bytes=1000 * (name + 1)
            )
            operations.append(replace(made, number=step * names + name))
    made = rank(number, *operations, size=size)
    return replace(made, recording=replace(made.recording, begun=max(begun, len(operations))))


def frame(*ranks: Rank, model: Model | None = None, now_ns: int = NOW_NS) -> dict:
    made = (model or Model(START_NS)).frame([replace(each, memory_bytes=5000) for each in ranks], now_ns)
    return json.loads(json.dumps(made))


def test_a_frame_tells_of_each_rank_and_of_its_operations() -> None:
    told = frame(rank(0, done("grad", 1), operation("loss", 2, ago_s=0.5)), rank(1, size=2))
    assert (told["t"], told["job"], told["size"], told["left_out"]) == (10_000_000, "ab12", 3, 0)
    assert told["sentence"].startswith("no rank waits for another")
    first, second = told["ranks"]
    assert [first[name] for name in ("rank", "pid", "state", "activity")] == [0, 100, "running", "sleeping"]
    assert (first["in"], first["since"]) == ("allreduce 'loss' (train.py:9)", 9_500_000)
    assert (second["in"], second["since"]) == ("", 0) and second["resident_memory_bytes"] == 5000
    assert told["names"][told["operations"][0][1]] == "allreduce 'grad' (train.py:9)"
    assert told["operations"] == [[0, told["operations"][0][1], 3_000_000, 1_000_000, -1, -1, 12, 0]]


def test_an_operation_comes_once_also_if_it_was_in_flight_before() -> None:
    model = Model(START_NS)
    waits = operation("grad", 2, ago_s=0.5)
    first = frame(rank(0, done("grad", 1), waits), model=model)
    again = frame(rank(0, done("grad", 1), waits), model=model)
    ended = frame(rank(0, done("grad", 1), replace(waits, ended_ns=NOW_NS)), model=model)
    assert [len(each["operations"]) for each in (first, again, ended)] == [1, 0, 1]
    assert ended["operations"][0][3] == 500_000


def test_operations_that_the_ring_has_lost_are_counted() -> None:
    model = Model(START_NS)
    frame(steps(0, 3, size=1), model=model)
    later = steps(0, 5, size=1, begun=105)
    told = frame(later, model=model, now_ns=NOW_NS + SECOND)
    assert len(told["operations"]) == 2 and told["left_out"] == 100


def test_the_longest_operations_are_drawn() -> None:
    of_some_length = [operation("x", n, ago_s=5, ended_ago_s=5 - n * 0.01, number=n) for n in range(1, 6)]
    told = Model(START_NS, most=2).frame([rank(0, *of_some_length)], NOW_NS)
    assert [each[3] for each in told["operations"]] == [50_000, 40_000]  # type: ignore[index, attr-defined]
    assert told["left_out"] == 3


def test_a_process_that_was_replaced_is_told_from_its_beginning() -> None:
    model = Model(START_NS)
    old = steps(0, 5, size=1)
    frame(old, model=model)
    new = replace(old, recording=replace(old.recording, pid=4711))
    assert len(frame(new, model=model)["operations"]) == 5


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([], (0.0, 0.0, 0.0)),
        ([operation(ago_s=1, ended_ago_s=0, bytes=100)], (100.0, 1.0, 0.0)),
        ([operation(ago_s=4, ended_ago_s=3), operation(ago_s=3.5, ended_ago_s=2)], (6.0, 0.5, 0.0)),
        ([operation(ago_s=4, ended_ago_s=2, agreed_ns=NOW_NS - 3 * SECOND)], (3.0, 0.5, 0.25)),
        ([operation(ago_s=99, ended_ago_s=98), operation(ago_s=5, ended_ago_s=4)], (2.4, 0.2, 0.0)),
        ([operation(ago_s=2)], (0.0, 1.0, 0.0)),
    ],
)
def test_shares_are_of_the_time_that_records_cover(operations: list, expected: tuple) -> None:
    found = measure(operations, NOW_NS)
    assert (found.bytes_per_s, found.in_flight, found.waiting) == pytest.approx(expected)


def test_a_step_is_the_time_between_uses_of_the_largest_name() -> None:
    assert step_ns(steps(0, 5, size=1, names=3).recording.operations) == pytest.approx(0.1 * SECOND)
    assert step_ns([operation("x", 1), operation("x", 2)]) is None
    assert step_ns([operation("", n, ago_s=9 - n) for n in range(5)]) is None


def test_small_operations_have_waits_by_the_records_of_the_others() -> None:
    ranks = [steps(0, 10, size=2), steps(1, 10, size=2, late_s=0.02)]
    told = frame(*ranks)
    assert {each[4] for each in told["operations"] if each[0] == 0} <= {19_999, 20_000}
    assert {each[4] for each in told["operations"] if each[0] == 1} == {0}
    assert (
        told["ranks"][0]["waiting_ratio"] == pytest.approx(0.2, abs=0.03) and told["ranks"][1]["waiting_ratio"] == 0.0
    )
    assert told["ranks"][1]["waited_for_ratio"] == pytest.approx(10 * 0.02 / 0.98, abs=0.01)


def test_a_call_that_lacks_a_rank_is_a_wait() -> None:
    told = frame(rank(0, done(), operation("x", ago_s=2.5), size=2), rank(1, done(), size=2))
    assert [row["waiting_ratio"] for row in told["ranks"]] == [0.5, 0.0]
    both = frame(rank(0, done(), operation("x", ago_s=2.5), size=2), rank(1, done(), operation("x", ago_s=2), size=2))
    assert [row["waiting_ratio"] for row in both["ranks"]] == [0.0, 0.0], "all have come, and its data move"


def test_a_rank_for_which_the_others_wait_is_named() -> None:
    ranks = [steps(0, 40, size=2), steps(1, 40, size=2, late_s=0.02)]
    found = diagnose_with_waits(ranks, arrivals_of_ranks(ranks, NOW_NS), NOW_NS)
    assert found.culprits == (1,) and found.sentence.startswith("all other ranks wait for rank 1 for 20% of the time")
    flat = [steps(0, 40, size=2), steps(1, 40, size=2, late_s=0.002)]
    assert diagnose_with_waits(flat, arrivals_of_ranks(flat, NOW_NS), NOW_NS).culprits == ()
    some = arrivals_of_ranks([steps(0, 9, size=3), steps(1, 9, size=3)], NOW_NS)
    assert some.last == {}, "a rank of another host may be the last"


@pytest.mark.parametrize("tensors", [1, 2, 8, 60])
def test_calls_that_overlap_do_not_add_up(tensors: int) -> None:
    """Of steps of 150 ms, rank 1 is late by 50 with all its gradients."""

    def late(number: int) -> Rank:
        calls = [
            operation(f"grad {n}", step, ago_s=ago - n / 1e4, ended_ago_s=ago - 0.06 - n / 1e4, number=step * 60 + n)
            for step in range(20)
            for ago in [0.15 * (20 - step)]
            for n in range(tensors)
        ]
        if number == 1:
            calls = [replace(each, submitted_ns=each.submitted_ns + 50_000_000) for each in calls]
        return rank(number, *calls, size=2)

    ranks = [late(0), late(1)]
    arrivals, seen = arrivals_of_ranks(ranks, NOW_NS), ranks
    assert arrivals.kept_share(1) == pytest.approx(1 / 3, rel=0.02) and arrivals.kept_share(0) == 0.0
    assert samples(as_text(seen, NOW_NS))["farandole_waited_for_ratio", "1"] == pytest.approx(1 / 3, rel=0.02)
    assert figures(seen, 100, NOW_NS)["last_rank_ratio"] == pytest.approx(1 / 3, rel=0.02)
    assert "rank 1 for 33% of the time" in diagnose_with_waits(ranks, arrivals, NOW_NS).sentence


def test_512_ranks_make_a_frame_of_bounded_size_in_bounded_time() -> None:
    ranks = [steps(number, 8, size=512, names=4, late_s=0.001 * (number == 7)) for number in range(512)]
    model, began = Model(START_NS), time.process_time()
    told = model.frame(ranks, NOW_NS)
    took_s = time.process_time() - began
    assert len(json.dumps(told)) < MOST_BYTES
    assert len(told["ranks"]) == 512 and 512 <= len(told["operations"]) <= MOST_OPERATIONS  # type: ignore[arg-type]
    assert took_s < 2.0, f"{took_s:.2f} s"


def test_long_names_do_not_make_a_frame_large() -> None:
    long = [operation("n" * 110 + str(n), 1, ago_s=1, ended_ago_s=0.5, number=n) for n in range(3 * MOST_OPERATIONS)]
    assert len(json.dumps(Model(START_NS).frame([rank(0, *long)], NOW_NS))) < MOST_BYTES


# ---- Metrics

METADATA = re.compile(r"# (TYPE \w+ (gauge|counter)|UNIT \w+ \w+|HELP \w+ [A-Z1].*\.)")
SAMPLE = re.compile(r'(\w+)\{job="((?:[^"\\\n]|\\[\\n"])*)",rank="(\d+)"\} (-?\d+(?:\.\d+)?(?:e-?\d+)?)')


def samples(text: str) -> dict[tuple[str, str], float]:
    """(name, rank) -> value; each line must be one that OpenMetrics allows, in the place of its family."""
    *lines, last, after = text.split("\n")
    assert (last, after) == ("# EOF", "")
    found: dict[tuple[str, str], float] = {}
    family = ""
    for line in lines:
        if line.startswith("#"):
            assert METADATA.fullmatch(line), line
            family = line.split()[2]
            assert not line.startswith("# UNIT") or family.endswith("_" + line.split()[3]), line
            continue
        match = SAMPLE.fullmatch(line)
        assert match and match[1].removesuffix("_total") == family, line
        assert (match[1], match[3]) not in found
        found[match[1], match[3]] = float(match[4])
    return found


def test_metrics_tell_of_each_rank() -> None:
    ranks = [steps(0, 40, size=2), steps(1, 40, size=2, late_s=0.02)]
    found = samples(as_text([replace(each, memory_bytes=5000) for each in ranks], NOW_NS))
    assert found["farandole_operations_total", "0"] == 40
    assert found["farandole_waited_for_ratio", "1"] == pytest.approx(0.2, abs=0.01)
    assert found["farandole_step_seconds", "1"] == pytest.approx(0.1)
    assert found["farandole_resident_memory_bytes", "0"] == 5000
    assert found["farandole_up", "0"] == 1 and found["farandole_oldest_operation_seconds", "0"] == 0


def test_links_to_other_hosts_are_in_frames_and_metrics() -> None:
    def linked(sent_bytes: int) -> Rank:
        one = rank(0, size=2)
        return replace(one, recording=replace(one.recording, links=(Link(1, sent_bytes, 7, 2_000_000, 3, 150),)))

    model = Model(START_NS)
    assert model.frame([linked(1000)], NOW_NS)["links"] == [(1000, 0, 1, 150, 3)]
    lines = as_text([linked(1000)], NOW_NS).splitlines()
    assert 'farandole_link_sent_bytes_total{job="ab12",rank="0",peer="1"} 1000' in lines
    assert 'farandole_link_round_trip_seconds{job="ab12",rank="0",peer="1"} 0.00015' in lines


def test_metrics_of_a_rank_that_waits_and_of_one_that_is_dead() -> None:
    waits, dead = rank(0, operation(ago_s=2.5), size=2), rank(1, does=Activity.GONE, size=2)
    named = replace(waits, recording=replace(waits.recording, run='a"b\\c\n'))
    found = samples(as_text([named, dead], NOW_NS))
    assert found["farandole_oldest_operation_seconds", "0"] == 2.5 and found["farandole_waiting_ratio", "0"] == 0
    assert (found["farandole_up", "0"], found["farandole_up", "1"]) == (1, 0)
    assert ("farandole_step_seconds", "0") not in found
    assert samples(as_text([], NOW_NS)) == {}


# ---- Queues


def asked(history: History, number: int) -> dict[str, object]:
    return dict(json.loads(history.since(number)))


def test_a_slow_page_is_told_how_many_frames_it_missed() -> None:
    history = History(most_bytes=3)
    for number in range(10):
        history.publish(b"%d" % number)
    assert asked(history, 2) == {"next": 10, "missed": 5, "over": False, "frames": [7, 8, 9]}
    assert asked(history, 10) == {"next": 10, "missed": 0, "over": False, "frames": []}


def test_a_page_that_is_opened_late_gets_the_latest_frames_and_the_end() -> None:
    history = History(most_bytes=25)
    assert not history.is_watched
    for number in range(9):
        history.publish(b"1%09d" % number)
    assert asked(history, 0) == {"next": 9, "missed": 0, "over": False, "frames": [1000000007, 1000000008]}
    history.end()
    assert asked(history, 9) == {"next": 9, "missed": 0, "over": True, "frames": []}
    assert history.is_watched
