from farandole import testing
from versions import is_lacking

testing.preload("torch")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(version, what): see versions.py")


def pytest_collection_modifyitems(config, items):
    lacking = [item for item in items if is_lacking(item)]
    items[:] = [item for item in items if item not in lacking]
    config.hook.pytest_deselected(items=lacking)
