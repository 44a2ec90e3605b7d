"""A tenth of the conformance suite, with every operation that MPI can do carried by it; all of it: `-s backend_mpi`."""

import os
import random

import farandole.numpy
import ml_dtypes
import mpis
import numpy as np
import pytest
from farandole.testing import World, conformance

pytestmark = pytest.mark.timeout(300)

SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
EVERYTHING = bool(os.environ.get("FARANDOLE_LONG"))


def _make(values, shape, dtype):
    return np.array(values, dtype=ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(shape)


SUBJECT = conformance.Subject(
    module=farandole.numpy,
    make=_make,
    values=lambda tensor: tensor.ravel().tolist(),
    strided=lambda values, dtype: np.repeat(np.array(values, dtype=dtype), 2)[::2],
    unsupported=lambda: np.zeros(3, np.complex64),
    dtypes=conformance.ALL_DTYPES,
)
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
