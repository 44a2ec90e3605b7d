"""A wait with a limit raises, and names who is missing; the operation goes on."""

import time

import farandole.numpy as hvd
import numpy as np
import pytest
from farandole import DeadlineError
from farandole.plugin.distributed import limit_waits
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)


def one_wait():
    hvd.init()
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(np.ones(2), name="late", op=hvd.Sum)
        for wait in (handle.wait, handle.map(np.sum).wait):
            begun = time.monotonic()
            with pytest.raises(DeadlineError, match=r"allreduce 'late' .* for rank 1 \(.* the timeout of this wait"):
                wait(0.3)
            assert 0.25 < time.monotonic() - begun < 5
    hvd.barrier()
    if hvd.rank() == 1:
        handle = hvd.allreduce_async(np.ones(2), name="late", op=hvd.Sum)
    assert handle.wait().tolist() == [2.0, 2.0]


def all_waits_of_a_set():
    hvd.init()
    both = hvd.add_process_set([0, 1]) if hvd.size() > 2 else hvd.global_process_set
    if hvd.rank() > 1:
        return
    limit_waits(both, 0.3)
    if hvd.rank() == 0:
        with pytest.raises(DeadlineError, match=r"for rank 1 \("):
            hvd.allreduce(np.ones(2), name="late", op=hvd.Sum, process_set=both)
        limit_waits(both, 0)
        assert hvd.allreduce(np.ones(2), name="gone on", op=hvd.Sum, process_set=both).tolist() == [2.0, 2.0]
    if hvd.rank() == 1:
        time.sleep(1.5)
        assert hvd.allreduce(np.ones(2), name="late", op=hvd.Sum, process_set=both).tolist() == [2.0, 2.0]
        limit_waits(both, 0)
        hvd.allreduce(np.ones(2), name="gone on", op=hvd.Sum, process_set=both)


@pytest.mark.parametrize("arenas", ["0", "1"])  # 0: as on two hosts, which share no memory
def test_one_wait(arenas):
    spawn(2, one_wait, env={"FARANDOLE_ARENAS": arenas}, timeout=60)


@pytest.mark.parametrize("ranks", [2, 3])
def test_all_waits_of_a_set(ranks):
    spawn(ranks, all_waits_of_a_set, timeout=60)
