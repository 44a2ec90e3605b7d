"""The launcher answers options and settings of horovodrun in one sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from farandole.launch import horovod

WITH_VALUE = frozenset({"-np", "-H"})


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--gloo", "--backend gloo"),
        ("--mpi", "mpirun -np N python train.py"),
        ("--check-build", "farandole doctor"),
        ("-cb", "farandole doctor"),
        ("--network-interface", "--network-interfaces NAME"),
        ("--fusion-threshold-mb=64", "FARANDOLE_FUSION_THRESHOLD"),
        ("--output-filename", "--output-dir DIR"),
        ("--autotune", "leave it out"),
    ],
)
def test_an_option_has_an_answer(run: Callable, flag: str, words: str) -> None:
    result = run("-np", 2, flag, "22", "python", "train.py")
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith(f"farandole: {flag.partition('=')[0]} is an option of horovodrun; here: "), line
    assert words in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["-np", "2", "python", "train.py", "--gloo"],  # the command's own
        ["-np", "--gloo"],  # the value of -np, wrong as it is
        ["-H", "localhost:2", "train.py"],
        ["--", "--gloo"],
        [],
    ],
)
def test_only_options_before_the_command_are_judged(arguments: list[str]) -> None:
    assert horovod.about_flags(arguments, WITH_VALUE) == ""


def test_settings_are_translated_once(run: Callable) -> None:
    env = {"HOROVOD_FUSION_THRESHOLD": "1", "HOROVOD_TIMELINE": "/tmp/t.json", "HOROVOD_RANK": "0"}
    env |= {"HOROVOD_LOG_LEVEL": "trace", "FARANDOLE_LOG_LEVEL": "debug"}  # ours is there: nothing to say
    result = run("-np", 2, "true", env=env)
    assert result.code == 0
    assert result.err.splitlines() == [
        "farandole: only programs that import horovod read Horovod's settings; here they are in brackets: "
        "HOROVOD_FUSION_THRESHOLD (FARANDOLE_FUSION_THRESHOLD, in bytes); "
        "HOROVOD_TIMELINE (farandole run --timeline-filename FILE)."
    ]


def test_the_number_of_ranks_may_follow_at_once(run: Callable) -> None:
    assert run("-np3", "sh", "-c", "echo $FARANDOLE_SIZE").out.split("\n")[0].endswith("3")
    assert "must be a positive whole number, not 'p'" in run("-np", "p", "true").err
