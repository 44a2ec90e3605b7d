"""A tenth of the conformance suite on numpy's arrays, carried by MPI and by Gloo."""

import carried
from numpy_subject import SUBJECT

# MPICH waits by spinning, so that more ranks than cores take long.
MPIS = (("openmpi", 2), ("openmpi", 3), ("mpich", 2))
test_a_tenth = carried.tenth(SUBJECT, (("gloo", 2), ("gloo", 3), *MPIS))
