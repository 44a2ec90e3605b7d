"""TensorFlow's digits, by Keras, on several hosts, started by each launcher.

Under torchrun, `farandole_torch` is imported as well: torch's store carries addresses and the key, and nothing else.
"""

import pytest
from digits import train_by
from launchers import LAUNCHERS

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_each_launcher_train_alike(lab, tmp_path, launcher):
    train_by(launcher, lab, tmp_path, "tensorflow", "keras_digits.py")
