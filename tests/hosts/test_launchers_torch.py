"""PyTorch's digits on several hosts, started by each launcher."""

import pytest
from digits import train_by
from launchers import LAUNCHERS

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_each_launcher_train_alike(lab, tmp_path, launcher):
    train_by(launcher, lab, tmp_path, "torch", "digits.py")
