"""`farandole bench`: its table, its file, and what it says about a wrong command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.launch import measure
from farandole.launch.job import JobError

FOLDED = {"allreduce": 2 * 2 / 3, "allgather": 2 / 3, "broadcast": 1.0}  # bus over algorithm with 3 ranks


@pytest.fixture
def bench(run: Callable) -> Callable:
    return lambda *arguments: run(*arguments, verb="bench")


@pytest.mark.parametrize("operation", sorted(FOLDED))
def test_each_size_is_a_line_and_a_row(bench: Callable, tmp_path: Path, operation: str) -> None:
    options = ["--operation", operation, "--seconds", 0.02, "--json", "rows.json"]
    result = bench("-np", 3, "--sizes", "4,3k,1M", *options)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0] == f"{operation} of float32 arrays on 3 ranks"
    assert [line.split()[:2] for line in lines[3:6]] == [["4", "B"], ["3", "KiB"], ["1", "MiB"]]
    report = json.loads((tmp_path / "rows.json").read_text())
    assert (report["operation"], report["ranks"]) == (operation, 3)
    assert [row["bytes"] for row in report["rows"]] == [4, 3072, 1 << 20]
    for row in report["rows"]:
        assert 0 < row["min_us"] <= row["median_us"] < 60e6
        assert row["algorithm_gb_s"] == pytest.approx(row["bytes"] / row["min_us"] / 1e3)
        assert row["bus_gb_s"] == pytest.approx(row["algorithm_gb_s"] * FOLDED[operation])


def test_two_ranks_are_the_default_and_one_is_enough(bench: Callable) -> None:
    assert "on 2 ranks\n" in bench("--sizes", "4", "--seconds", 0.01).out
    assert "on 1 rank\n" in bench("-np", 1, "--sizes", "4", "--seconds", 0.01).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sizes", "64Q"], "--sizes wants bytes with K, M or G for powers of 1024, as in 4,64K,1M, not '64Q'"),
        (["--sizes", " "], "not ''"),
        (["--sizes", "4,,8"], "not ''"),
        (["--sizes", "6"], "multiple of 4 bytes, the size of a float32, not '6'"),
        (["--sizes", "0"], "positive multiple of 4 bytes"),
        (["--sizes", "-4"], "not '-4'"),
        (["--sizes", "65G"], "64G at most, not '65G'"),
        (["-np", "0"], "-np must be a positive whole number, not '0'"),
        (["--operation", "gossip"], "gossip"),
        (["--seconds", "0"], "--seconds must be above 0"),
        (["--seconds", "nan"], "--seconds must be above 0"),
        (["--json", "nowhere/rows.json"], "there is no folder"),
        (["--json"], "requires an argument"),
        (["stray"], "stray"),
        (["--tune", "-np", "1"], "--tune compares ways between ranks, and so needs -np 2 or more"),
        (
            ["--tune", "--sizes", "4"],
            "--tune measures allreduce at sizes of its own and writes its own file; leave out",
        ),
        (["--tune", "--operation", "broadcast"], "leave out --sizes, --operation, --seconds and --json"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(
    bench: Callable, arguments: list[str], words: str
) -> None:
    result = bench(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("farandole: ") and result.err.count("\n") == 1
    assert words in result.err


def test_sizes_are_read_in_powers_of_1024() -> None:
    assert measure.parse_sizes("4, 64k,1M,2G") == [4, 1 << 16, 1 << 20, 2 << 30]
    assert measure.parse_sizes(measure.DEFAULT_SIZES)[-1] == 64 << 20
    for text in ("1e3", "4.0", "K", "\u0661", "9" * 13):
        with pytest.raises(JobError):
            measure.parse_sizes(text)


def test_it_runs_in_the_folder_where_it_was_called(bench: Callable, tmp_path: Path) -> None:
    bench("--sizes", "4", "--seconds", 0.01, "--json", "here.json")
    assert os.listdir(tmp_path) == ["here.json"]


def test_limits_are_measured_anew_and_kept(bench: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        result = bench("--tune")
        assert (result.code, result.err) == (0, "")
        (kept,) = (tmp_path / "farandole").iterdir()
        limits = json.loads(kept.read_text())["2"]
        assert result.out.startswith("sums of float32 arrays on 2 ranks, by the ways")
        assert f"\nKept in {kept}.\n" in result.out
        overwrites = limits.split(":")[3]
        assert ("What they have read in cells, they leave as it is." in result.out) == (overwrites == "0")
        assert result.out.endswith(f"without measuring: FARANDOLE_TUNING={limits}\n")
        kept.write_text("{}")


@pytest.mark.parametrize(("name", "value"), [("FARANDOLE_ARENAS", "0"), ("FARANDOLE_BACKEND", "gloo,native")])
def test_limits_of_shared_memory_are_measured_in_no_other(
    bench: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(name, value)
    result = bench("--tune")
    assert (result.code, result.out) == (2, "")
    assert "--tune compares ways through shared memory: unset FARANDOLE_ARENAS=0" in result.err
    assert not list(tmp_path.iterdir())


def test_help_keeps_the_lines_of_its_examples(bench: Callable) -> None:
    assert "\n      farandole bench -np 4 --sizes 4,64K,16M\n" in bench("--help").out
