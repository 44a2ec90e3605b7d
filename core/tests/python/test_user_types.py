from pathlib import Path

import farandole.numpy as hvd
import pytest
from type_checks import findings, program_of, unused_names

pytestmark = pytest.mark.timeout(300)  # mypy has read nothing yet
PROGRAM = program_of("farandole.numpy", Path(__file__).with_name("user_types.py"), "farandole.numpy.Array")


def test_a_users_program_uses_every_public_name():
    assert unused_names(hvd, PROGRAM) == []


def test_strict_type_checkers_find_nothing_in_it(tmp_path):
    assert findings(PROGRAM, tmp_path) == ""


def test_each_of_them_finds_a_wrong_use_and_what_it_does_not_know(tmp_path):
    text = "import farandole.numpy as hvd\nimport numpy as np\n\nsome: str = hvd.allreduce(np.ones(2))\nhvd.unknown()\n"
    text += "hvd.init(process_sets=3)\n"
    found = findings({"own.py": text}, tmp_path)
    assert [f"own.py:{line}: error" in found for line in (4, 5, 6)] == [True] * 3
    assert [f"own.py:{place}" in found for place in ("4:13", "5:5", "6:23")] == [True] * 3
