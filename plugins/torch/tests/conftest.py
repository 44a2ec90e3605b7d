import importlib.util
import os

from farandole import testing
from versions import is_lacking

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported, here and in the ranks
testing.preload("torch", "torch._dynamo")  # which an optimizer's first step imports, in 2 seconds
if importlib.util.find_spec("keras"):  # most tests do without
    testing.preload("keras")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(version, what): see versions.py")


def pytest_collection_modifyitems(config, items):
    lacking = [item for item in items if is_lacking(item)]
    items[:] = [item for item in items if item not in lacking]
    config.hook.pytest_deselected(items=lacking)
