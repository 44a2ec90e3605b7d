"""A rank ends in any state, in time, with the exit code that its program asked for."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from farandole.testing import rank_environments

with mock.patch.dict(os.environ, FARANDOLE_RANK="0"):
    from exit_states import STATES

pytestmark = pytest.mark.timeout(120)
SCRIPT = Path(__file__).with_name("exit_states.py")
LIMIT_S = 30


def end(name, **env):
    """Exit codes and output by rank."""
    with rank_environments(2, env) as environments:
        processes = [
            subprocess.Popen(
                [sys.executable, str(SCRIPT), name],
                env=each,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for each in environments
        ]
        try:
            outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    return tuple(process.returncode for process in processes), outputs


@pytest.mark.parametrize("name", STATES)
def test_exit(name):
    codes, outputs = end(name)
    assert codes == STATES[name][1], "\n".join(outputs)


def test_operations_are_completed_whoever_called_init():
    _, outputs = end("operations_after_the_cores_init")
    assert outputs == ["", ""]


def test_gradients_that_were_lost_are_told_in_one_line():
    _, outputs = end("gradients_lost_and_unread")
    for output in outputs:
        assert output.startswith("farandole: this script ended without reading that its gradients were lost: ")
        assert "(3, 3)" in output and "(3, 4)" in output
        assert "Traceback" not in output


def test_exit_of_the_naive_engine():
    codes, outputs = end("after_operations", MXNET_ENGINE_TYPE="NaiveEngine")
    assert codes == (0, 0), "\n".join(outputs)


def test_there_are_20_states():
    assert len(STATES) >= 20
