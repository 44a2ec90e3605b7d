"""A tenth of the conformance suite, with every operation that MPI can do carried by it; all of it: `-s backend_mpi`."""

import os
import random

import mpis
import pytest
from farandole.testing import World, conformance
from numpy_subject import SUBJECT

pytestmark = pytest.mark.timeout(300)

SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
EVERYTHING = bool(os.environ.get("FARANDOLE_LONG"))


# MPICH waits by spinning, so that more ranks than cores take long.
WORLDS = (("openmpi", 2), ("openmpi", 3), ("mpich", 2), ("mpich-standard", 2))


@pytest.mark.parametrize(("kind", "ranks"), WORLDS)
def test_a_tenth_of_the_conformance_suite(kind, ranks):
    every = conformance.checks(SUBJECT)
    chosen = random.Random(f"{SEED} {kind} {ranks}").sample(every, len(every) // (1 if EVERYTHING else 10))
    with World(ranks, env=mpis.variables(kind), launcher=mpis.launcher(kind, ranks)) as world:
        for check in chosen:
            print(check.__name__)
            world.run(conformance.perform, check.__module__, check.__name__, SUBJECT)
