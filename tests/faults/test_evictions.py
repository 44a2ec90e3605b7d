"""Cache entries of names are evicted while ranks join, leave and die: a use completes for all of its ranks or for none.

FARANDOLE_LONG=1 runs 1,000 jobs; FARANDOLE_SEED chooses others. One job alone:
`python tests/faults/evictions.py 1 SEED NUMBER`.
"""

import os

import pytest
from test_kills import kill

LONG = bool(os.environ.get("FARANDOLE_LONG"))
JOBS = 1000 if LONG else 16
SEED = os.environ.get("FARANDOLE_SEED", "1")

pytestmark = pytest.mark.timeout(1800 if LONG else 120)


def test_every_use_completes_for_all_ranks_or_for_none():
    outcomes = kill("evictions.py", JOBS, SEED)
    assert {each["job"]["end"] for each in outcomes} == {"none", "join", "leave", "death"}
