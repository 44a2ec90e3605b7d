"""The gate of speed: which rows it has, how turns become ratios, outcomes and a table. Nothing is timed."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path

import builds
import gate
import pytest
from builds import ROOT, Build
from gate import LEAST_PAIRS, MOST_REPETITIONS, PAIRS, STARTS, orders, plan_for
from gate_results import Ratio, Result, all_met, compare, summary, table_lines
from gate_rows import BATCH_S, GROUPS, SIZES, Job, Row, all_jobs, chosen_jobs

KIB, MIB = 1 << 10, 1 << 20
EQUAL = Ratio(1.0, 1.0)


def result(new: Ratio = EQUAL, itself: Ratio = EQUAL, limit: float = 1.05, oversubscribed: bool = False) -> Result:
    return Result(Row("TCP, 2 ranks, 4 B", limit, "allreduce", 4), new, itself, oversubscribed)


# ---- Outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "itself", "limit", "outcome"),
    [
        (EQUAL, EQUAL, 1.05, "met"),
        (Ratio(0.5, 0.5), EQUAL, 1.05, "met"),
        (Ratio(1.05, 1.05), EQUAL, 1.05, "met"),
        (Ratio(1.06, 1.0), EQUAL, 1.05, "missed"),
        (Ratio(1.0, 1.06), EQUAL, 1.05, "missed"),
        (Ratio(1.06, 1.06), EQUAL, 1.10, "met"),
        (Ratio(1.34, 1.34), EQUAL, 1.35, "met"),
        (Ratio(1.06, 1.06), Ratio(1.04, 0.96), 1.05, "missed"),
        (EQUAL, Ratio(1.06, 1.0), 1.05, "noisy"),
        (EQUAL, Ratio(1.0, 1.06), 1.05, "noisy"),
        (EQUAL, Ratio(0.95, 1.0), 1.05, "noisy"),
        (EQUAL, Ratio(1.0, 0.95), 1.05, "noisy"),
        (Ratio(2.0, 2.0), Ratio(1.0, 1.06), 1.05, "noisy"),
        (EQUAL, Ratio(1.06, 1.06), 1.10, "met"),
    ],
)
def test_minimum_median_and_noise_decide(new: Ratio, itself: Ratio, limit: float, outcome: str) -> None:
    assert result(new, itself, limit).outcome == outcome


@pytest.mark.parametrize("new", [EQUAL, Ratio(2.0, 2.0)])
def test_a_row_with_more_ranks_than_cores_is_not_judged(new: Ratio) -> None:
    found = result(new, oversubscribed=True)
    assert found.outcome == "information"
    assert all_met([found])


@pytest.mark.parametrize(
    ("new", "itself", "met"), [(EQUAL, EQUAL, True), (Ratio(1.2, 1.2), EQUAL, False), (EQUAL, Ratio(1.2, 1.2), False)]
)
def test_all_rows_are_met_when_none_is_missed_or_noisy(new: Ratio, itself: Ratio, met: bool) -> None:
    assert all_met([result(), result(new, itself)]) == met


def test_the_best_batches_and_the_median_pair_of_turns_are_compared() -> None:
    frozen = [[1.0, 1.0, 4.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]]
    new = [[3.0, 3.0, 2.0], [2.0, 2.0, 0.5], [2.0, 2.0, 2.0]]
    assert compare(new, frozen) == Ratio(0.5, 1.0)  # pairs: 3, 1 and 0.5


def test_the_table_has_a_line_for_each_row() -> None:
    lines = table_lines([result(Ratio(1.2, 1.0), Ratio(0.98, 1.01)), result(oversubscribed=True)])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][0] == "row"
    assert cells[2] == ["TCP, 2 ranks, 4 B", "1.050", "1.200", "1.000", "0.980", "1.010", "missed"]
    assert len(lines) == 4 and len({len(line) for line in lines}) == 1


def test_the_summary_counts_outcomes() -> None:
    assert summary([result(), result(), result(Ratio(2.0, 1.0)), result(oversubscribed=True)]) == (
        "2 met, 1 missed, 1 information"
    )


# ---- Rows ------------------------------------------------------------------------------------------------------------


def limits(title: str) -> dict[int, float]:
    return {row.size_bytes: row.limit for job in all_jobs() if job.title == title for row in job.rows}


@pytest.mark.parametrize("ranks", [2, 4])
def test_limits_over_shared_memory_depend_on_the_size(ranks: int) -> None:
    found = limits(f"shared memory, {ranks} ranks")
    assert list(found) == list(SIZES)
    assert {limit for size, limit in found.items() if size <= 512} == {1.10}
    assert {limit for size, limit in found.items() if KIB <= size <= 32 * KIB} == {1.35}
    assert {limit for size, limit in found.items() if size >= 64 * KIB} == {1.05}


def test_the_named_call_has_the_limits_of_its_transport() -> None:
    assert limits("Python, named call, shared memory") == {4: 1.10, 64 * KIB: 1.05, 16 * MIB: 1.05}
    assert set(limits("Python, named call, TCP").values()) == {1.05}


def test_all_other_rows_may_be_slower_by_5_percent() -> None:
    others = [job for job in all_jobs() if job.group != "shm" and "named" not in job.title]
    assert {row.limit for job in others for row in job.rows} == {1.05}


def test_each_row_has_a_title_of_its_own() -> None:
    titles = Counter(row.title for job in all_jobs() for row in job.rows)
    assert set(titles.values()) == {1}
    assert {job.group for job in all_jobs()} == set(GROUPS)


def test_groups_and_sizes_narrow_the_rows() -> None:
    (small, _) = found = chosen_jobs(["tcp"], [4, MIB])
    assert [job.title for job in found] == ["TCP, 2 ranks", "TCP, 4 ranks"]
    assert [row.size_bytes for row in small.rows] == [4, MIB]
    assert chosen_jobs(["hosts"], [512]) == []
    (step,) = chosen_jobs(["step"], [4])  # whose rows have no size
    assert [row.what for row in step.rows] == ["optimizer", "ddp"]


def test_workers_are_the_build_s_programs_and_this_checkout_s_scripts() -> None:
    for job in all_jobs():
        program = Path(job.command(Build(Path("/home/of/a/build")))[job.worker[0].endswith(".py")])
        expected = ROOT if program.suffix == ".py" else Path("/home/of/a/build/cmake")
        assert program.is_relative_to(expected)
        assert program.suffix != ".py" or program.is_file()


# ---- Turns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [3, 6, 21])
def test_each_build_is_as_often_first_second_and_third(pairs: int) -> None:
    found = Counter(
        (place, at) for start in range(STARTS) for order in orders(start, pairs) for place, at in enumerate(order)
    )
    assert found == {(place, at): pairs // 3 for place in range(3) for at in range(3)}


@pytest.mark.parametrize("once", [1e-8, 1e-6, 1e-3, 0.1, 1.0, 10.0])
def test_slow_operations_get_fewer_turns(once: float) -> None:
    plan = plan_for(once, BATCH_S, PAIRS)
    assert 1 <= plan.repetitions <= MOST_REPETITIONS and plan.batches >= 1
    assert plan.pairs % STARTS == 0 and LEAST_PAIRS <= plan.pairs <= PAIRS
    assert plan.pairs == (PAIRS if once < 0.3 else LEAST_PAIRS)


def test_no_more_turns_are_taken_than_asked_for() -> None:
    assert plan_for(1.0, BATCH_S, 3).pairs == 3


def test_batches_over_a_limited_link_are_long() -> None:
    (row,) = (row for job in all_jobs() if job.link == "gigabit" for row in job.rows if row.size_bytes == 64 * KIB)
    plan = plan_for(0.0005, row.batch_s, PAIRS)
    assert plan.batches == 1 and plan.repetitions * row.size_bytes > 10 * MIB


# ---- The program -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--pairs=20"], "positive multiple of 3"),
        (["--pairs=0"], "positive multiple of 3"),
        (["--pairs=-3"], "positive multiple of 3"),
        (["--sizes=5"], "invalid choice"),
        (["--only=gpus"], "invalid choice"),
    ],
)
def test_other_options_are_refused(
    options: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gate.py", *options])
    with pytest.raises(SystemExit) as ended:
        gate.main()
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [dataclasses.replace(job, needs=("no_such_package",)) for job in all_jobs()]
    monkeypatch.setattr(gate, "chosen_jobs", lambda groups, sizes: jobs)
    monkeypatch.setattr("sys.argv", ["gate.py"])
    with pytest.raises(SystemExit):
        gate.main()
    assert f"{sys.executable} lacks no_such_package" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "failures", "code"),
    [([result()], [], 0), ([result(Ratio(1.2, 1.2))], [], 1), ([result()], ["TCP, 2 ranks: a rank has ended"], 1)],
)
def test_the_program_ends_with_1_unless_all_rows_are_met(
    results: list[Result],
    failures: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["gate.py", "--only", "shm"])
    monkeypatch.setattr(gate, "frozen_build", lambda folder: Build(Path("frozen")))
    monkeypatch.setattr(gate, "new_build", lambda: Build(Path("new")))
    monkeypatch.setattr(gate, "run", lambda jobs, trio, pairs: (results, failures))
    assert gate.main() == code
    assert all(f"not measured: {failure}" in capsys.readouterr().out for failure in failures)


def test_the_other_rows_are_measured_when_a_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(job: Job, trio: list[Build], pairs: int) -> list[Result]:
        if job.link:
            raise RuntimeError("h1: no such device")
        return [result()]

    monkeypatch.setattr(gate, "measure", measure)
    results, failures = gate.run(chosen_jobs(["hosts", "step"], SIZES), [], 3)
    assert results == [result()]
    assert failures == ["two hosts, 1 Gbit/s: h1: no such device", "two hosts, no limit: h1: no such device"]


def test_the_frozen_build_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def compile_sources(sources: Path, home: Path) -> Build:
        home.mkdir(parents=True)
        made.append(sources)
        return Build(home)

    monkeypatch.setattr(builds, "extract", lambda commit, folder: None)
    monkeypatch.setattr(builds, "compile_sources", compile_sources)
    monkeypatch.setattr(builds, "toolchain", lambda: "one compiler")
    assert builds.frozen_build(tmp_path) == builds.frozen_build(tmp_path)
    assert len(made) == 1
    monkeypatch.setattr(builds, "toolchain", lambda: "another compiler")
    builds.frozen_build(tmp_path)
    assert len(made) == 2
