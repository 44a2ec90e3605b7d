"""A rank ends in any state, in time, with the exit code that its program asked for."""

import os
from pathlib import Path
from unittest import mock

import pytest
from farandole.testing import spawn

with mock.patch.dict(os.environ, FARANDOLE_RANK="0"):
    from exit_states import STATES

pytestmark = pytest.mark.timeout(120)
SCRIPT = Path(__file__).with_name("exit_states.py")
LIMIT_S = 30


def end(name, **env):
    """Exit codes and output by rank."""
    codes, outputs = zip(*spawn(2, SCRIPT, name, timeout=LIMIT_S, env=env, check=False), strict=True)
    return codes, outputs


@pytest.mark.parametrize("name", STATES)
def test_exit(name):
    codes, outputs = end(name)
    assert codes == STATES[name][1], "\n".join(outputs)


@pytest.mark.parametrize("name", ["peer_left_before", "several_wait_and_one_is_read"])
def test_an_error_is_not_told_once_more_by_mxnet(name):
    _, outputs = end(name)
    assert "Exception ignored in atexit callback" not in outputs[0]
    assert outputs[0].count("has left the job") == (name == "several_wait_and_one_is_read"), outputs[0]
    assert "Traceback" not in outputs[0]


def test_operations_are_completed_whoever_called_init():
    _, outputs = end("operations_after_the_cores_init")
    assert outputs == ("", "")


def test_gradients_that_were_lost_are_told_in_one_line():
    _, outputs = end("gradients_lost_and_unread", FARANDOLE_CHECK_PARAMETERS="0")
    for output in outputs:
        assert output.startswith("farandole: this script ended without reading a failed result: ")
        assert "(3, 3)" in output and "(3, 4)" in output
        assert "Traceback" not in output


def test_exit_of_the_naive_engine():
    codes, outputs = end("after_operations", MXNET_ENGINE_TYPE="NaiveEngine")
    assert codes == (0, 0), "\n".join(outputs)


def test_there_are_20_states():
    assert len(STATES) >= 20
