import os
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported

import farandole_torch as hvd
import farandole_torch.keras as khvd
import pytest
from type_checks import findings, keras_program_of, program_of, unused_names

pytestmark = pytest.mark.timeout(300)  # mypy has read nothing yet
PROGRAM = program_of("farandole_torch", Path(__file__).with_name("user_types.py"), "torch.Tensor")
OF_KERAS = keras_program_of("farandole_torch.keras", Path(__file__).with_name("user_types_keras.py"), "torch.Tensor")


def test_a_users_program_uses_every_public_name():
    assert unused_names(hvd, PROGRAM) == []
    assert unused_names(khvd, OF_KERAS) == []


def test_strict_type_checkers_find_nothing_in_it(tmp_path):
    assert findings(PROGRAM, tmp_path) == ""


def test_strict_type_checkers_find_nothing_in_one_of_keras(tmp_path):
    assert findings(OF_KERAS, tmp_path) == ""
