"""PyTorch's digits on several hosts; the other plugins' have sessions of their own: `python3 noxfile.py -s hosts`."""

import pytest
from digits import train_alike

pytestmark = pytest.mark.timeout(600)


def test_digits_train_alike_on_several_hosts_and_on_one(lab, launch, tmp_path):
    train_alike(lab, launch, tmp_path, "torch", "digits.py")
