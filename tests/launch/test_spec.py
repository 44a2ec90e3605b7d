"""The description of a job: types and bounds, JSON, and what the command line makes of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import farandole.launch
import pytest
from farandole.launch.spec import Count, JobSpec, SpecError, groups, leaves


def test_values_are_taken_in_the_types_of_their_leaves() -> None:
    spec = JobSpec.of(
        ["python", "train.py"], num_proc=4, env=["A=1"], output_dir="logs", blacklist_cooldown_range=[1, 2]
    )
    assert spec.command == ("python", "train.py")
    assert (spec.ranks.num_proc, spec.ranks.env, spec.output.output_dir) == ("4", ("A=1",), Path("logs"))
    assert spec.elastic.blacklist_cooldown_range == (1.0, 2.0)
    assert spec.where.hosts is None and spec.output.prefix, "defaults"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("min_np", 0, "a whole number of at least 1"),
        ("min_np", 1.5, "a whole number of at least 1"),
        ("min_np", True, "a whole number of at least 1"),
        ("ssh_port", 65536, "a whole number from 1 to 65535"),
        ("elastic_timeout", "soon", "a number"),
        ("elastic_timeout", float("inf"), "a number"),
        ("blacklist_cooldown_range", (1,), "two numbers"),
        ("bind_to", "socket", "one of core, none"),
        ("env", "A=1", "a list of texts"),
        ("env", ["A\0=1"], "a list of texts"),
        ("hosts", b"h1:2", "a text"),
        ("key_file", "a\0b", "the name of a file"),
        ("output_dir", 3, "the name of a file"),
        ("verbose", 1, "true or false"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_field(name: str, value: object, wanted: str) -> None:
    with pytest.raises(SpecError, match=f"^{name} must be {wanted}") as found:
        JobSpec.of(**{name: value})
    assert found.value.field == name


def test_a_command_that_is_one_text_is_refused() -> None:
    with pytest.raises(SpecError, match="command must be a list of words") as found:
        JobSpec.of("python train.py")
    assert found.value.field == "command"


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(SpecError, match=r"^ranks is no field of a job") as found:
        JobSpec.of(ranks=3)
    assert found.value.field == "ranks"


def _other_value(kind: Any, least: int | None) -> object:
    if isinstance(kind, tuple):
        return kind[0] if isinstance(kind[0], str) else ("a", "b") if kind[0] is str else (1.0, 2.0)
    return {bool: True, int: (least or 0) + 1, float: 1.5, str: "text", Count: "auto", Path: Path("file")}[kind]


@pytest.mark.parametrize("leaf", [leaf for group in groups().values() for leaf in leaves(group)], ids=lambda x: x.name)
def test_each_leaf_comes_back_from_json(leaf: Any) -> None:
    value = not leaf.default if leaf.kind is bool else _other_value(leaf.kind, leaf.least)
    spec = JobSpec.of(["a b", "ü"], **{leaf.name: value})
    assert JobSpec.from_json(spec.to_json()) == spec


def test_a_new_option_is_one_field(tmp_path: Path) -> None:
    """On a copy of the package: the command line, the environment, files of options and JSON know it at once."""
    package = Path(farandole.launch.__file__).parents[1]
    copy = tmp_path / "farandole"
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            (copy / path.relative_to(package)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(package)).symlink_to(path)
    spec = copy / "launch" / "spec.py"
    text = spec.read_text()
    spec.unlink()
    anchor = '    verbose: bool = option("Report'
    assert text.count(anchor) == 1
    spec.write_text(text.replace(anchor, f'    color: int | None = option("Of lines.", "N", least=1)\n{anchor}'))
    (tmp_path / "options.toml").write_text("[run]\ncolor = 7\n")

    def run(*words: str, **variables: str) -> str:
        command = [sys.executable, "-m", "farandole.launch", "run", *words]
        environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout + done.stderr

    assert "--color N" in run("--help")
    assert "'--color': 0 is not in the range" in run("--color", "0", "true")
    assert re.search("--color +3 +command line", run("--color", "3", "--show-config", "true"))
    assert "environment (FARANDOLE_RUN_COLOR)" in run("--show-config", "true", FARANDOLE_RUN_COLOR="5")
    file = str(tmp_path / "options.toml")
    assert re.search("--color +7 +file", run("--config-file", file, "--show-config"))
