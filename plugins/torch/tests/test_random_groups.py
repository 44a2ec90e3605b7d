"""Random calls in several groups and threads at once. FARANDOLE_LONG=1: 10,000 of them."""

import os

import pytest
from farandole.testing import spawn
from versions import needs

LONG = bool(os.environ.get("FARANDOLE_LONG"))
SEED = int(os.environ.get("FARANDOLE_SEED", "1"))

pytestmark = [pytest.mark.timeout(3000 if LONG else 180), needs(2, 7, "what the backend needs")]


def in_groups(seed, cases):
    import random_groups
    from test_distributed import joined

    joined()
    random_groups.run(seed, cases)


def test_random_calls():
    spawn(4, in_groups, SEED, 10_000 if LONG else 300, timeout=2900 if LONG else 150)
