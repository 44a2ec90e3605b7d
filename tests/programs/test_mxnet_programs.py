"""Published programs for MXNet, unmodified, on two ranks."""

import pytest
from published import STAND_INS, horovods_tests, on_two_ranks

pytestmark = pytest.mark.timeout(900)


def test_horovods_own_tests() -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mxnet.py"]
    assert on_two_ranks(*words, folder=horovods_tests(), paths=(STAND_INS,)).count("13 passed") == 2
