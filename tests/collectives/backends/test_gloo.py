"""That Gloo carries the operations, and a rank that dies meanwhile.

FARANDOLE_GLOO_LIB names the library; the sessions build it.
"""

import os
import signal
import time

import numpy as np
import pytest
from farandole.testing import RanksFailed, World

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif("FARANDOLE_GLOO_LIB" not in os.environ, reason="FARANDOLE_GLOO_LIB is not set"),
]

PREFERRED = {"FARANDOLE_BACKEND": "gloo,native"}


def test_it_is_gloo_that_carries_them():
    def sums():
        import farandole.numpy as frd
        import psutil

        def connections():  # over TCP, which ranks of one machine do not use among themselves
            return [each for each in psutil.Process().net_connections("tcp") if each.status == "ESTABLISHED"]

        before = len(connections())
        results = [float(frd.allreduce(np.ones(size), op=frd.Sum)[0]) for size in (1, 100_000)]
        return results, len(connections()) - before

    with World(2, env=PREFERRED) as world:
        assert world.run(sums) == [([2.0, 2.0], 1)] * 2


def test_the_rank_that_died_is_named_while_gloo_waits_for_it():
    def until_it_dies():
        import farandole.numpy as frd

        for step in range(1_000_000):
            if frd.rank() == 1 and step == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            frd.allreduce(np.ones(300_000, np.float32), name="gradient")

    begin = time.monotonic()
    with pytest.raises(RanksFailed, match=r"rank 0 raised(.|\n)*PeerLostError: .*rank 1 .*died"):
        World(3, env=PREFERRED).run(until_it_dies)
    assert time.monotonic() - begin < 60


def test_without_its_library_one_sentence_says_what_to_install():
    missing = {"FARANDOLE_BACKEND": "gloo", "FARANDOLE_GLOO_LIB": "/nowhere/libfarandole_gloo.so"}
    with pytest.raises(RanksFailed, match=r"needs libfarandole_gloo\.so.*pip install 'farandole\[gloo\]'"):
        World(2, env=missing).run(lambda: None)
