"""The faults that `python3 tests/planted/plant.py` plants have their places in the tree as it is."""

from pathlib import Path

import pytest
from plant import finder
from planted_faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_one_place(fault):
    assert (ROOT / fault.path).read_text().count(fault.before) == 1, f"move the fault along with the code: {fault}"
    assert fault.after != fault.before


def test_there_are_at_least_30_faults_and_no_name_comes_twice():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_its_finder_is_there(fault):
    command = finder(fault.found_by)
    if command[1] == "python":
        assert all((ROOT / path.partition("::")[0]).exists() for path in command[3:-1])
