import os
from pathlib import Path

import pytest
from farandole import testing

FOLDER = Path(__file__).parent

testing.preload("torch")


def pytest_collection_modifyitems(items):
    import torch

    if torch.cuda.device_count() == 0:
        lacking = pytest.mark.skip("torch sees no GPU")
        for item in items:
            if item.path.parent == FOLDER:
                item.add_marker(lacking)


os.environ.setdefault("FARANDOLE_TEST_DEVICE", "cuda")  # before torch_device is imported, here and in the ranks
