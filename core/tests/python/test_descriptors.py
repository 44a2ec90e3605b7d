"""How many files a rank may open: the limit is raised where that is allowed, else said before anything is begun."""

import os
import resource

import farandole
import pytest
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(60)


def limit(more_soft, more_hard):
    open_now = len(os.listdir("/proc/self/fd"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if more_hard is None else open_now + more_hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + more_soft, hard))
    return open_now


def begin_with_a_low_soft_limit():
    open_now = limit(10, None)
    farandole.init()
    farandole.barrier()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= open_now + 44
    farandole.shutdown()


def test_the_soft_limit_is_raised():
    spawn(2, begin_with_a_low_soft_limit, timeout=30)


def begin_with_a_low_hard_limit():
    limit(10, 10)
    with pytest.raises(ValueError, match=r"2 ranks needs 14 to 44 open files in each of them.*ulimit -Hn"):
        farandole.init()


def test_the_hard_limit_is_named():
    spawn(2, begin_with_a_low_hard_limit, timeout=30)
