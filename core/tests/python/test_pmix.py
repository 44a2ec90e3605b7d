"""PMIx where it is missing or fails; tests/hosts has Slurm's."""

import pytest
from farandole._start import pmix

pytestmark = pytest.mark.timeout(60)


class Library:
    """Of a step that is not there."""

    def PMIx_Init(self, place, infos, count):
        return -25


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    monkeypatch.setattr(pmix, "_sessions", [])


def test_a_host_without_the_library_says_so(monkeypatch):
    monkeypatch.setattr(pmix, "_LIBRARY", "libpmix.so.nowhere")
    with pytest.raises(OSError, match=r"this host has no libpmix.so.nowhere; start the ranks with `srun --mpi=pmi2`"):
        pmix.exchange_of(0, 2, 30.0)(b"")


def test_a_call_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(pmix.ctypes, "CDLL", lambda name: Library())
    with pytest.raises(OSError, match=r"PMIx_Init of PMIx fails with code -25; start the ranks with"):
        pmix.exchange_of(0, 2, 30.0)(b"")
