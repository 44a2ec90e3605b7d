"""Versions of PyTorch that are too old are refused where the plugin is imported."""

import subprocess
import sys

IMPORT = """
import torch
torch.__version__ = "{}"
try:
    import {}
except ImportError as error:
    print(error)
"""


def told(version, module):
    command = [sys.executable, "-W", "ignore", "-c", IMPORT.format(version, module)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()


def test_older_ones_are_refused_in_one_sentence():
    assert told("2.2.2+cpu", "farandole_torch") == (
        "farandole-torch works with PyTorch 2.3 and later, and this is 2.2.2+cpu: python -m pip install 'torch>=2.3'"
    )
    assert told("2.6.0", "farandole_torch.distributed") == (
        "farandole_torch.distributed works with PyTorch 2.7 and later, and this is 2.6.0: "
        "python -m pip install 'torch>=2.7'"
    )
