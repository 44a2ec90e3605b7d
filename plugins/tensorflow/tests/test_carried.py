"""A tenth of the conformance suite, carried by Gloo; in its long form by each MPI, too."""

import carried
from test_conformance import SUBJECT

test_a_tenth = carried.tenth(SUBJECT)
