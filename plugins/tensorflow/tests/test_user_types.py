from pathlib import Path

import farandole_tensorflow as hvd
import pytest
from type_checks import findings, lint_python, program_of, unused_names

pytestmark = pytest.mark.timeout(300)  # mypy has read nothing yet
PROGRAM = program_of("farandole_tensorflow", Path(__file__).with_name("user_types.py"))


def test_a_users_program_uses_every_public_name():
    assert unused_names(hvd, PROGRAM) == []


def test_strict_type_checkers_find_nothing_in_it(tmp_path):
    assert findings(PROGRAM, tmp_path, lint_python()) == ""
