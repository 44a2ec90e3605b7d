"""The functions that say what works in this installation, before there is a world and beside libraries of our own."""

import ctypes
import os

import fake_gpus
import farandole.numpy as hvd
import mpis
import pytest


def test_without_libraries_only_our_own_core_carries(monkeypatch):
    for name in ("FARANDOLE_CUDA_DRIVER", "FARANDOLE_NCCL_LIB", "FARANDOLE_MPI_LIB"):
        monkeypatch.setenv(name, "/nowhere/lib.so")
    assert (hvd.cuda_built(), hvd.nccl_built(), hvd.mpi_built()) == (False, 0, False)
    assert (hvd.gloo_built(), hvd.gloo_enabled(), hvd.mpi_enabled(), hvd.mpi_threads_supported()) == (
        True,
        True,
        False,
        False,
    )
    assert not any([hvd.ddl_built(), hvd.ccl_built(), hvd.rocm_built()])


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    for name, value in fake_gpus.variables(tmp_path).items():
        monkeypatch.setenv(name, value)
    return ctypes.CDLL(os.environ["FARANDOLE_CUDA_DRIVER"])


def test_nccls_version_is_an_integer_and_cuda_is_left_alone(gpus):
    version = ctypes.c_int()
    ctypes.CDLL(os.environ["FARANDOLE_NCCL_LIB"]).ncclGetVersion(ctypes.byref(version))
    assert hvd.nccl_built() == version.value > 20000
    assert hvd.cuda_built() is True
    assert gpus.fake_cuda_calls(b"cuInit") == 0


def test_a_forked_child_may_ask(gpus):
    expected = hvd.nccl_built()
    child = os.fork()
    if child == 0:
        os._exit(hvd.nccl_built() != expected)
    assert os.waitpid(child, 0)[1] == 0


def test_nccl_without_a_driver_is_none(gpus, monkeypatch):
    monkeypatch.setenv("FARANDOLE_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    assert hvd.nccl_built() == 0


def test_an_mpi_that_is_here_is_found_and_the_setting_enables_it(monkeypatch):
    for name, value in mpis.variables("openmpi").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FARANDOLE_BACKEND", raising=False)
    assert hvd.mpi_built() is True and not hvd.mpi_enabled()
    monkeypatch.setenv("FARANDOLE_BACKEND", "mpi,native")
    assert hvd.mpi_enabled() and hvd.mpi_threads_supported() and not hvd.gloo_enabled()
