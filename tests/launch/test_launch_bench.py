"""`farandole bench`: its table, its file, and what it says about a wrong command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from farandole.launch import verbs

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
    assert verbs.parse_sizes("4, 64k,1M,2G") == [4, 1 << 16, 1 << 20, 2 << 30]
    assert verbs.parse_sizes(verbs.DEFAULT_SIZES)[-1] == 64 << 20
    for text in ("1e3", "4.0", "K", "\u0661", "9" * 13):
        with pytest.raises(click.UsageError):
            verbs.parse_sizes(text)


def test_it_runs_in_the_folder_where_it_was_called(bench: Callable, tmp_path: Path) -> None:
    bench("--sizes", "4", "--seconds", 0.01, "--json", "here.json")
    assert os.listdir(tmp_path) == ["here.json"]


def test_help_keeps_the_lines_of_its_examples(bench: Callable) -> None:
    assert "\n      farandole bench -np 4 --sizes 4,64K,16M\n" in bench("--help").out
