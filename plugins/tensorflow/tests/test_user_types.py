from pathlib import Path

import farandole_tensorflow as hvd
import farandole_tensorflow.keras as khvd
import pytest
from type_checks import findings, keras_program_of, lint_python, program_of, unused_names

pytestmark = pytest.mark.timeout(300)  # mypy has read nothing yet
PROGRAM = program_of("farandole_tensorflow", Path(__file__).with_name("user_types.py"))

OF_KERAS = keras_program_of(
    "farandole_tensorflow.keras", Path(__file__).with_name("user_types_keras.py"), "tensorflow.Tensor"
)


def test_a_users_program_uses_every_public_name():
    assert unused_names(hvd, PROGRAM) == []
    assert unused_names(khvd, OF_KERAS) == []


def test_strict_type_checkers_find_nothing_in_it(tmp_path):
    assert findings(PROGRAM, tmp_path, lint_python()) == ""


def test_strict_type_checkers_find_nothing_in_one_of_keras(tmp_path):
    assert findings(OF_KERAS, tmp_path, lint_python()) == ""
