"""What PyTorch builds on torch.distributed gives the same results with Farandole as with Gloo."""

import pytest
import torch
import torch.distributed as dist
from farandole.testing import spawn
from versions import needs

pytestmark = [pytest.mark.timeout(300), needs(2, 9, "what the cases call")]


def in_both(folder):
    """Each case with Gloo, then with Farandole, in the same processes."""
    import farandole_torch as hvd
    import parallelisms

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    found = {}
    for backend in ("gloo", "farandole"):
        dist.init_process_group(backend, init_method=f"file://{folder}/{backend}", rank=rank, world_size=size)
        for case in parallelisms.CASES:
            torch.manual_seed(rank)
            found[backend, case.__name__] = case()
        dist.destroy_process_group()
    for case in parallelisms.CASES:
        tolerance = 2e-3 if case is parallelisms.communication_hooks else 1e-6  # which sum in 16 bits
        for got, want in zip(found["farandole", case.__name__], found["gloo", case.__name__], strict=True):
            assert torch.allclose(got, want, rtol=tolerance, atol=tolerance), case.__name__


def test_results_are_those_of_gloo(tmp_path):
    spawn(4, in_both, str(tmp_path), timeout=240)
