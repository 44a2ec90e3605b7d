"""Runs PyTorch's own suite of torch.distributed on ranks of this machine.

    python c10d_suite.py BACKEND RANKS RESULTS [TEST ...]

writes how each test ended to RESULTS, as JSON: {"test_broadcast": "passed", ...}. The suite is for backends that it
knows by name, so it believes that this is Gloo; where it makes groups, they are BACKEND's. Each test gets processes of
its own, forked from this one: to import PyTorch takes longer than most tests.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

LIMIT_S = 100  # for a test; those that pass take up to 30 s with 8 ranks on 2 cores


def rename_backend(backend: str) -> None:
    """Have whoever asks for a group of Gloo get one of `backend`."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    def renamed(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            words = [backend if isinstance(each, str) and each == "gloo" else each for each in args]
            if kwargs.get("backend") == "gloo":
                kwargs["backend"] = backend
            return function(*words, **kwargs)

        return call

    for name in ("init_process_group", "new_group", "split_group"):
        function = renamed(getattr(distributed_c10d, name))
        setattr(dist, name, function)
        setattr(distributed_c10d, name, function)


def adapt_to_farandole(suite: Any) -> None:
    """Have the suite look for the profiler's events of our groups, too, and call our monitored_barrier."""
    import torch.distributed as dist
    from farandole_torch.distributed import monitored_barrier

    for backends in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        backends.append("farandole")
    dist.monitored_barrier = monitored_barrier


class Outcomes(unittest.TestResult):
    """The outcome of each test by name, written down as it goes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.found = path, {}

    def _note(self, test: unittest.TestCase, outcome: str) -> None:
        name = test.id().rpartition(".")[2]
        self.found[name] = outcome
        self.path.write_text(json.dumps(self.found, indent=1, sort_keys=True))
        print(f"==> {name}: {outcome}", flush=True)

    def addSuccess(self, test: Any) -> None:
        self._note(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, f"skipped: {reason}")

    def addFailure(self, test: Any, error: Any) -> None:
        self._note(test, f"failed: {str(error[1])[-3000:]}")

    addError = addFailure


def main(backend: str, ranks: str, results: str, *names: str) -> None:
    folder = tempfile.mkdtemp()
    os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": ranks, "TEMP_DIR": folder, "OMP_NUM_THREADS": "1"}
    os.environ |= {"INIT_METHOD": f"file://{folder}/store", "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(LIMIT_S)}
    import torch.multiprocessing
    from torch.testing._internal.distributed import distributed_test as suite

    class Forked(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    if backend != "gloo":
        rename_backend(backend)
        adapt_to_farandole(suite)
    tests = unittest.defaultTestLoader.getTestCaseNames(Forked)
    unittest.TestSuite(Forked(each) for each in names or tests).run(Outcomes(Path(results)))


if __name__ == "__main__":
    main(*sys.argv[1:])
