"""PyTorch's own suite for backends of torch.distributed: what passes with Gloo passes with Farandole.

`gloo_passes.json` has the tests that pass with Gloo, by the number of ranks, as c10d_suite.py finds them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from published import installed

HERE = Path(__file__).parent
PASSES = json.loads((HERE / "gloo_passes.json").read_text())
# Test -> the line of c10d that makes it impossible.
IMPOSSIBLE = {
    "test_get_backend": "distributed_test.py compares dist.get_backend() with the text 'gloo'",
}

pytestmark = pytest.mark.timeout(7200)


def outcomes(backend: str, ranks: int, results: Path, *tests: str) -> dict[str, str]:
    path = os.pathsep.join([str(installed("expecttest==0.3.0")), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "c10d_suite.py"), backend, str(ranks), str(results), *tests]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True, timeout=7000)
    return json.loads(results.read_text())


@pytest.mark.parametrize("ranks", [4, 8])
def test_what_passes_with_gloo(ranks: int, tmp_path: Path) -> None:
    assert torch.__version__.partition("+")[0] == PASSES["torch"], "find out anew what passes with Gloo"
    tests = PASSES[str(ranks)]
    found = outcomes("farandole", ranks, tmp_path / "results.json", *tests)
    failed = {test: found[test] for test in tests if found[test] != "passed"}
    print("pass with Gloo, and not with Farandole:", *(f"\n{test}: {how}" for test, how in failed.items()))
    assert sorted(failed) == sorted(test for test in IMPOSSIBLE if test in tests)
    assert len(IMPOSSIBLE) <= 8
