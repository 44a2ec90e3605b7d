import os

from farandole import testing
from versions import is_lacking

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported, here and in the ranks
testing.preload("torch", "torch._dynamo", "keras")  # an optimizer's first step imports torch._dynamo, in 2 seconds


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(version, what): see versions.py")


def pytest_collection_modifyitems(config, items):
    lacking = [item for item in items if is_lacking(item)]
    items[:] = [item for item in items if item not in lacking]
    config.hook.pytest_deselected(items=lacking)
