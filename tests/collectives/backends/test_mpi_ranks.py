"""Every call that the backend makes of MPI, by each library: core/tests/mpi_ranks, in the session `carried`."""

import os
import subprocess

import mpis
import pytest
from carried import EVERY, LONG

if LONG:

    @pytest.mark.timeout(200)
    @pytest.mark.parametrize(("library", "ranks"), [each for each in EVERY if each[0] != "gloo"])
    def test_every_call_of_mpi_does_what_is_wanted(library, ranks):
        variables = mpis.variables(library)
        program = [os.environ["FARANDOLE_MPI_RANKS"], variables["FARANDOLE_MPI_LIB"]]
        command = [*mpis.launcher(library, ranks), *program]
        done = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=150, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
