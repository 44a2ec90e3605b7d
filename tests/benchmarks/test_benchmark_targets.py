"""Results of the benchmark from its figures: a target that is missed is never called met."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from contestants import ContestantError
from tables import FACE, KERNEL, LIMIT, OURS, Report, Table, TargetResult
from targets import KIB, MIB, target_results
from turns import Entry, Round, Times

SIZES = [4 << power for power in range(27)]


def table(key: str, ranks: int, ours, limit, **others) -> Table:
    """A whole table from functions of the size, in microseconds."""
    columns = {OURS: ours, LIMIT: limit, **others}
    names = [OURS, *others]
    made = Table(key, key, ranks, "", names)
    for size in SIZES:
        made.rows[size] = {name: Times(us(size), us(size), 1) for name, us in columns.items() if us(size) is not None}
    return made


def good_pair(**changes) -> Table:
    columns = {
        "ours": lambda size: 0.3 + size / 1e4 * 1.1,
        "limit": lambda size: 0.06 + size / 1e4,
        KERNEL: lambda size: 0.08 if size <= 32 * KIB else None,
        "Open MPI": lambda size: 0.5 + size / 1e4 * 8,
        **changes,
    }
    return table("pair", 2, columns.pop("ours"), columns.pop("limit"), **columns)


def missed(*tables: Table, **figures: tuple[float, str]) -> list[str]:
    return [result.what for result in target_results(tables, figures) if not result.met]


def test_a_good_pair_misses_nothing() -> None:
    results = target_results([good_pair()], {})
    assert [result.what for result in results if not result.met] == []
    # 4 B, kernel, 4 of the cross-core limit, 2 of both limits, 2 about steps, 4 ranges beside peers twice
    assert len(results) == 18


@pytest.mark.parametrize(
    ("column", "slow", "factor", "words"),
    [
        ("ours", 4, 1.5, "2 ranks, 4 B"),
        (KERNEL, 4, 2, "pair: bare kernel, 4 B, of a cache-line exchange"),
        ("ours", 512, 3, "2 ranks from 4 B to 2 KiB"),
        ("ours", 32 * KIB, 6.5, "2 ranks from 4 KiB to 1 MiB"),
        ("ours", 64 * KIB, 1.6, "pair, 64 KiB, of the cross-core limit"),
        ("ours", 4 * MIB, 1.6, "pair, 4 MiB, of the cross-core limit"),
        ("ours", 64 * MIB, 1.8, "pair, 64 MiB, of the DRAM bound and the cross-core limit together"),
        ("ours", 256 * MIB, 1.8, "pair, 256 MiB, of the DRAM bound and the cross-core limit together"),
        ("ours", 2 * MIB, 10, "2 ranks from 2 MiB to 8 MiB"),
        ("Open MPI", 32 * MIB, 0.35, "2 ranks from 16 MiB"),
    ],
)
def test_one_slow_size_is_one_missed_target(column: str, slow: int, factor: float, words: str) -> None:
    made = good_pair()
    name = OURS if column == "ours" else column
    us = made.us(slow, name)
    assert us is not None
    made.rows[slow][name] = Times(us * factor, us * factor, 1)
    beside = ": nearest peer : ours"
    ways = [f"{words}, {by}{beside}" for by in ("minimums", "medians")]
    found = [what for what in missed(made) if "size" not in what]  # its neighbours' steps are judged below
    assert found == (ways if " from " in words else [words])


def test_a_step_may_be_as_steep_as_that_of_the_limit_and_no_size_is_faster_than_half_of_it() -> None:
    made = good_pair()
    for size in SIZES[SIZES.index(8 * MIB) :]:  # beyond a cache
        for name in (OURS, LIMIT, "Open MPI"):
            us = 3 * (made.us(size, name) or 0)
            made.rows[size][name] = Times(us, us, 1)
    assert missed(made) == []
    us = (made.us(32 * KIB) or 0) * 2.6
    made.rows[32 * KIB][OURS] = Times(us / 2.6, us, 1)
    steps = [what for what in missed(made) if "size" in what]
    assert steps == [
        "pair: the steepest doubling of the size (to 32 KiB), of what is allowed",
        "pair: 64 KiB beside half the size",
    ]


def test_what_was_not_measured_is_missed_in_a_whole_run_only() -> None:
    made = good_pair()
    del made.rows[64 * KIB][OURS]
    assert missed(made) == ["pair, 64 KiB, of the cross-core limit"]
    made.rows = {4: made.rows[4]}
    assert missed(made) == []


def test_a_cliff_is_more_than_four_times_the_time_of_half_the_size() -> None:
    made = table("crowd", 4, lambda size: 2 + size / 1e4, lambda size: size / 1e4)
    assert missed(made) == []
    made.rows[8 * KIB][OURS] = Times(12.0, 12.0, 1)
    assert missed(made) == ["4 ranks: the steepest doubling of the size (at 8 KiB)"]


def test_tcp_is_judged_by_bare_sockets_below_4_and_from_64_kib() -> None:
    made = table("tcp", 2, lambda size: 1.2 + size / 1e4, lambda size: 1 + size / 1e4)
    assert missed(made) == []
    for size, factor in ((4, 3), (2 * KIB, 3), (4 * KIB, 9), (32 * KIB, 9), (64 * KIB, 1.3), (128 * MIB, 9)):
        us = made.us(size)
        assert us is not None
        made.rows[size][OURS] = Times(us * factor, us * factor, 1)
    assert missed(made) == [f"tcp, {size}, of a raw exchange" for size in ("4 B", "2 KiB", "64 KiB")]


def test_python_and_single_figures_are_judged() -> None:
    made = good_pair(**{FACE: lambda size: 4.0, "gloo": lambda size: 16.0 if size == 64 else 100.0})
    named = "named sum of 4 floats from numpy, submission to completion, minimum"
    figures = {named: (16.0, "us"), "negotiation messages in a steady step on one host": (0.0, "")}
    assert "2 ranks, PyTorch: gloo : ours at worst (at 64 B)" in missed(made, **figures)
    assert named in missed(made, **figures)
    assert "negotiation messages in a steady step on one host" not in missed(made, **figures)


def test_a_report_says_which_target_is_missed_and_by_how_much(tmp_path: Path) -> None:
    results = [TargetResult("2 ranks, 4 B", 0.5, 0.4, " us"), TargetResult("init", None, 50, " ms")]
    Report({"cores": 2}, [good_pair()], {"init": (3.0, "ms")}, results).write(tmp_path)
    text = (tmp_path / "allreduce.md").read_text()
    assert "0 of 2 are met. Those that are missed:" in text
    assert "- 2 ranks, 4 B: 0.5 us, wanted <= 0.4 us" in text
    assert "- init: not measured, wanted <= 50 ms" in text
    assert "| 256 MiB | 26844 | 29528 / 29528 | 214749 | 7.27 / 7.27 |" in text
    assert "| 32 MiB |" not in text  # some sizes only
    report = json.loads((tmp_path / "allreduce.json").read_text())
    assert [target["met"] for target in report["targets"]] == [False, False]
    assert list(report["tables"][0]["rows"]) == [str(size) for size in SIZES]
    assert report["tables"][0]["rows"]["4"][OURS]["min_us"] == pytest.approx(0.3, abs=0.01)


class Clock:
    """A contestant that takes `us` for each operation, `waking_us` more at first, and counts what it is asked for."""

    def __init__(self, us: float, fails: bool = False, waking_us: float = 0) -> None:
        self.us, self.fails, self.closed, self.waking_us = us, fails, False, waking_us
        self.asked: list[tuple[int, int]] = []

    def measure(self, _size: int, repetitions: int, batches: int, _what: str) -> list[float]:
        if self.fails:
            raise ContestantError("it ended")
        self.asked.append((repetitions, batches))
        return [(self.us + self.waking_us) / 1e6, *[self.us / 1e6] * (batches - 1)]

    def close(self) -> None:
        self.closed = True


def test_a_batch_of_fast_operations_has_many_and_one_of_slow_ones_has_one() -> None:
    fast, slow = Clock(0.5), Clock(5000)
    times = Round([Entry("fast", fast), Entry("slow", slow)], 0.1).measure(4)  # type: ignore[arg-type]
    assert times["fast"].min_us == pytest.approx(0.5)
    assert fast.asked[1][0] == 400
    assert slow.asked[1][0] == 1


def test_a_size_that_is_measured_again_has_the_times_of_both_runs() -> None:
    clock = Clock(2)
    turns = Round([Entry("one", clock)], 0.01)  # type: ignore[arg-type]
    first = turns.measure(4)["one"]
    clock.us = 1
    both = turns.measure(4)["one"]
    assert (first.min_us, both.min_us) == (pytest.approx(2), pytest.approx(1))
    assert both.batches > first.batches
    assert turns.measure(8)["one"].batches < both.batches


def test_the_batch_in_which_a_contestant_wakes_does_not_count() -> None:
    times = Round([Entry("one", Clock(2, waking_us=900))], 0).measure(4)["one"]  # type: ignore[arg-type]
    assert (times.min_us, times.median_us) == (pytest.approx(2), pytest.approx(2))


def test_who_is_too_slow_or_ends_sits_larger_sizes_out() -> None:
    slow, ended, fine = Clock(7e5), Clock(1, fails=True), Clock(1)
    entries = [Entry(name, clock) for name, clock in (("slow", slow), ("ended", ended), ("fine", fine))]  # type: ignore[arg-type]
    turns = Round(entries, 0.05)
    assert sorted(turns.measure(4)) == ["fine", "slow"]
    assert sorted(turns.measure(8)) == ["fine"]
    assert turns.gone == {"slow": "took 0.7 s at 4 B", "ended": "it ended"}
    assert ended.closed
