"""A tenth of the conformance suite, carried by MPI and by Gloo."""

import carried
from test_conformance import SUBJECT

test_a_tenth = carried.tenth(SUBJECT, (*carried.USUAL, ("openmpi", 2)))
