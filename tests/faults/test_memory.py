"""A rank that runs out of memory in a call raises; so do the others, and none of them hangs."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(60)

LEFT_BYTES = 64 << 20
TOO_MANY_BYTES = 256 << 20


@contextmanager
def little_memory() -> Iterator[None]:
    """Let this process have only a few megabytes more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + LEFT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def one_has_no_memory():
    fnp.init()
    fnp.barrier()
    name = "n" * (TOO_MANY_BYTES if fnp.rank() == 1 else 1)  # the core keeps a copy
    with pytest.raises((MemoryError, farandole.FarandoleError)) as caught, little_memory():
        fnp.allreduce(np.ones(3), name=name)
    del name
    fnp.shutdown()
    fnp.init()
    result = float(fnp.allreduce(np.ones(3), op=fnp.Sum)[0])
    fnp.shutdown()
    return result, str(caught.value)[:1000]


def test_all_ranks_raise_and_init_builds_a_new_world():
    (first, message), (second, _) = spawn(2, one_has_no_memory, timeout=30)
    assert first == second == 2.0
    assert "rank 1" in message
    assert "out of memory" in message
