"""TensorFlow's digits, by Keras, on several hosts."""

import pytest
from digits import train_alike

pytestmark = pytest.mark.timeout(600)


def test_digits_train_alike_on_several_hosts_and_on_one(lab, launch, tmp_path):
    train_alike(lab, launch, tmp_path, "tensorflow", "keras_digits.py")
