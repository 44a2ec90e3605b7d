"""Versions of PyTorch that are too old are refused where the plugin is imported."""

import pytest
from farandole.testing import spawn

IMPORT = """
import torch
torch.__version__ = "{}"
try:
    import {}
except ImportError as error:
    print(error)
"""


@pytest.fixture
def told(tmp_path):
    def say(version, module):
        script = tmp_path / "imports.py"
        script.write_text(IMPORT.format(version, module))
        return spawn(1, script, timeout=120)[0].strip()

    return say


def test_older_ones_are_refused_in_one_sentence(told):
    assert told("2.2.2+cpu", "farandole_torch") == (
        "farandole-torch works with PyTorch 2.3 and later, and this is 2.2.2+cpu: python -m pip install 'torch>=2.3'"
    )
    assert told("2.6.0", "farandole_torch.distributed") == (
        "farandole_torch.distributed works with PyTorch 2.7 and later, and this is 2.6.0: "
        "python -m pip install 'torch>=2.7'"
    )
