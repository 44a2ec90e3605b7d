"""In place of test/common.py, which Horovod's tests import and its source archives lack."""

import contextlib
import os
import tempfile


def mpi_env_rank_and_size():
    return int(os.environ.get("HOROVOD_RANK", "0")), int(os.environ.get("HOROVOD_SIZE", "1"))


@contextlib.contextmanager
def temppath():
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "path")


@contextlib.contextmanager
def override_env(env):
    earlier = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(earlier)
