"""Random settings of DistributedOptimizer against the same training in one process.

A failure prints FARANDOLE_SEED and FARANDOLE_CASE; with both set, only that one is run. FARANDOLE_LONG=1 runs 1,000.
"""

import os

import pytest
from drawn_settings import Key
from drawn_training import hurried, train_all, unhurried
from farandole.testing import world

LONG = bool(os.environ.get("FARANDOLE_LONG"))
CASES = 1000 if LONG else 60
SHARES = {1: 0.1, 2: 0.45, 3: 0.45}
SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
ONLY = os.environ.get("FARANDOLE_CASE", "")

pytestmark = pytest.mark.timeout(1200 if LONG else 180)


@pytest.mark.parametrize("ranks", SHARES)
def test_training_is_that_of_one_process(ranks):
    keys = [Key(SEED, ranks, number) for number in range(round(CASES * SHARES[ranks]))]
    if ONLY:
        keys = [key for key in (Key(SEED, ranks, int(ONLY.split("-")[-1])),) if str(key).endswith(f"={ONLY}")]
    world(ranks).run(hurried)
    answers = world(ranks).run(train_all, keys, timeout=1000)
    world(ranks).run(unhurried)
    failures = [text for failed in answers for text in failed]
    assert not failures, "\n".join(failures[:4])
