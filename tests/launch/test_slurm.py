"""Slurm's allocations, as variables tell them; scontrol and srun are stand-ins. tests/hosts has real ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.launch.hosts import HostSlots
from farandole.launch.schedulers import slurm
from farandole.launch.spec import SpecError

ALLOCATION = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "h[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "3",
}
SCONTROL = "#!/bin/sh\n[ \"$1 $2 $3\" = 'show hostnames h[1-2]' ] || exit 1; printf 'h1\\nh2\\n'\n"
SRUN = """#!/bin/sh
# Runs the words after the options, as a task of the step.
for word; do case "$word" in --nodelist=*) host=${word#--nodelist=};; esac; done
while case "$1" in --*) true;; *) false;; esac; do shift; done
unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
"""


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """Variables with scontrol and srun in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    return {**ALLOCATION, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(("text", "counts"), [("4", [4]), ("2(x3),1", [2, 2, 2, 1]), ("1,3(x2)", [1, 3, 3])])
def test_tasks_per_node_are_slots(text: str, counts: list[int]) -> None:
    assert slurm.task_counts(text, len(counts)) == counts


@pytest.mark.parametrize("text", ["", "x", "2(x", "2(x2)x", "-1", "2,2,2"])
def test_tasks_per_node_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="SLURM_TASKS_PER_NODE"):
        slurm.task_counts(text, 2)


def test_an_allocation_of_several_hosts_has_their_slots(
    programs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs["PATH"])
    found = slurm.allocation(programs)
    assert found is not None and found.slots == (HostSlots("h1", 2), HostSlots("h2", 1))
    assert slurm.allocation({**programs, "SLURM_JOB_NUM_NODES": "1"}) is None
    assert slurm.allocation({}) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a stand-in for srun another host's name")
def test_ranks_are_started_by_srun(run: Callable, programs: dict[str, str]) -> None:
    code = "import os; print(os.uname().nodename, os.environ['RANK'], 'SLURM_PROCID' in os.environ)"
    result = run("python", "-c", code, env=programs)
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out.splitlines()) == [
        "[0 h1] h1 0 False",
        "[1 h1] h1 1 False",
        "[2 h2] h2 2 False",
    ]


def test_mistakes_are_one_sentence(run: Callable, programs: dict[str, str]) -> None:
    for variables, arguments, words in (
        ({"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_ID": "0"}, [], "srun has started 3 launchers"),
        ({}, ["-np", "9"], "9 asks for more ranks than the 3 slots of Slurm's allocation"),
        ({"SLURM_JOB_NODELIST": "unknown"}, [], "scontrol show hostnames 'unknown' failed"),
    ):
        result = run(*arguments, "true", env={**programs, **variables})
        assert result.code == 2 and words in result.err and result.err.count("\n") == 1, result.err
