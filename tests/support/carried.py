"""A tenth of the conformance suite with what a library can do carried by it, for a test of each plugin:

    test_a_tenth = carried.tenth(SUBJECT)

FARANDOLE_LONG=1, as in the session `carried`: all of it, on more ranks, and by each MPI.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import mpis
import pytest
from farandole.testing import World, conformance

_SEED = int(os.environ.get("FARANDOLE_SEED", "1"))
LONG = bool(os.environ.get("FARANDOLE_LONG"))
_SHARE = 1 if LONG else 10

USUAL = (("gloo", 2),)  # library, ranks; Open MPI carries numpy's arrays and PyTorch's tensors, too, MPICH numpy's
# All but Open MPI and Gloo wait by spinning, which more ranks than cores cannot.
EVERY = [(library, ranks) for library in ("gloo", "openmpi") for ranks in (1, 2, 3, 4)]
EVERY += [(library, ranks) for library in ("mpich", "impi") for ranks in (1, 2)]


def tenth(subject: conformance.Subject[Any], worlds: Sequence[tuple[str, int]] = USUAL) -> Callable[[str, int], None]:
    """A test for each of the worlds. A library of MPI is called as in `mpis`."""
    every = conformance.checks(subject)

    @pytest.mark.timeout(1800 if LONG else 600)
    @pytest.mark.parametrize(("library", "ranks"), EVERY if LONG else worlds)
    def test(library: str, ranks: int) -> None:
        chosen = random.Random(f"{_SEED} {library} {ranks}").sample(every, len(every) // _SHARE)
        with _world(library, ranks) as world:
            for check in chosen:
                print(check.__name__)
                world.run(conformance.perform, check.__module__, check.__name__, subject)

    return test


def _world(library: str, ranks: int) -> World:
    if library != "gloo":
        return World(ranks, env=mpis.variables(library), launcher=mpis.launcher(library, ranks))
    if "FARANDOLE_GLOO_LIB" not in os.environ:  # the sessions build it
        pytest.skip("FARANDOLE_GLOO_LIB is not set")
    return World(ranks, env={"FARANDOLE_BACKEND": "gloo,native"})
