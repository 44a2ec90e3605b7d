"""MXNet's digits, by Gluon, on several hosts."""

import pytest
from digits import train_alike

pytestmark = pytest.mark.timeout(600)


def test_digits_train_alike_on_several_hosts_and_on_one(lab, launch, tmp_path):
    train_alike(lab, launch, tmp_path, "mxnet", "gluon_digits.py")
