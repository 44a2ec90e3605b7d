"""Ranks are killed at random instants of init(): all others are told in time whom they lack, and nothing is left.

FARANDOLE_LONG=1 kills 500 ranks; FARANDOLE_SEED chooses others. One job alone:
`python tests/faults/start_kills.py 1 SEED NUMBER`.
"""

import os
from collections import Counter

import pytest
from test_kills import kill

LONG = bool(os.environ.get("FARANDOLE_LONG"))
JOBS = 500 if LONG else 8
SEED = os.environ.get("FARANDOLE_SEED", "1")

pytestmark = pytest.mark.timeout(1800 if LONG else 120)


def test_every_survivor_of_a_start_is_told_in_time_and_nothing_is_left():
    outcomes = kill("start_kills.py", JOBS, SEED)
    places = Counter(place for each in outcomes for place in each["places"])
    print(f"{JOBS} kills; the survivors heard of the death: {dict(places)}")
    assert not LONG or places["within"] > 0  # of a few, none may have come while init was under way
