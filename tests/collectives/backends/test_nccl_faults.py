"""Failures of NCCL, in processes of their own: all ranks report them, soon, and by name. Over the same fakes."""

import signal

import pytest
from fake_gpus import variables
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(150)

LIMIT_S = 60

# argv: what happens. Ends with 0 when the rank got an error of Farandole's, whose kind and text it prints.
SCRIPT = """
import os, signal, sys, time
import torch
import farandole
import farandole_torch as hvd
from fake_gpus import torch_with_gpu

what = sys.argv[1]
gpu = torch_with_gpu(int(os.environ.get("ORDINAL", 0)))
try:
    hvd.init()
    if what == "killed in the kernel":
        assert hvd.allreduce(torch.ones(10), op=hvd.Sum)[0].item() == hvd.size()
        gpu.nccl.fake_nccl_hang()
    if what == "shared GPU":
        gpu.nccl.fake_nccl_refuse_shared_devices()
    if what == "no memory" and hvd.rank() == 1:
        gpu.cuda.fake_cuda_fail(b"cuMemAlloc_v2", 2)
    if what == "asynchronous error":
        hvd.barrier()
        gpu.nccl.fake_nccl_hang()
    if what.endswith("at rest"):
        kept = hvd.allreduce_async(torch.ones(10), op=hvd.Sum)
        while not hvd.poll(kept):
            time.sleep(0.01)
        if what == "left at rest":
            hvd.shutdown()
            assert gpu.nccl.fake_nccl_live() == 0, "a communicator is left behind"
            sys.exit()
        if hvd.rank() == 1:
            os.write(1, f"{time.monotonic()}\\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.ones(100)
    if what == "no memory":
        handle = hvd.allgather_async(tensor, name="grad")
    else:
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="grad")
    if what.startswith("killed") and hvd.rank() == 1:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline and not hvd.poll(handle):
            time.sleep(0.01)
        os.write(1, f"{time.monotonic()}\\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "asynchronous error" and hvd.rank() == 1:
        time.sleep(0.3)
        gpu.nccl.fake_nccl_fail_later(1)
    hvd.synchronize(handle)
except (farandole.FarandoleError, ValueError) as error:
    text = " ".join(str(error).split())
    os.write(1, f"{time.monotonic()} {type(error).__name__}: {text}\\n".encode())
else:
    sys.exit("no error")
hvd.shutdown()
assert gpu.nccl.fake_nccl_live() == 0, "a communicator is left behind"
gpu.check()
"""


def run_ranks(folder, what, ranks, each=lambda rank: {}, **more):
    """By rank: the exit code, when it was last heard of, and what it said."""
    script = folder / "script.py"
    script.write_text(SCRIPT)

    def env(rank):
        return {**variables(folder), "CUDA_VISIBLE_DEVICES": str(rank), **more, **each(rank)}

    results = []
    for code, output in spawn(ranks, script, what, timeout=LIMIT_S, env=env, check=False):
        at, _, text = output.strip().splitlines()[-1].partition(" ") if output.strip() else ("0", "", "")
        results.append((code, at, text or output))
    return results


def killed_and_survivors(results):
    """The text of each survivor, all of which heard of rank 1's death soon after it."""
    assert results[1][0] == -signal.SIGKILL, results
    died = float(results[1][1])
    survivors = [result for rank, result in enumerate(results) if rank != 1]
    for code, at, text in survivors:
        assert code == 0, text
        assert float(at) - died < 15, "long after, and long before FARANDOLE_TIMEOUT"
        assert text.startswith("PeerLostError") and "rank 1 (" in text, text
    return survivors


def test_a_rank_that_is_killed_in_ncclallreduce_is_named_to_all(tmp_path):
    killed_and_survivors(run_ranks(tmp_path, "killed in the kernel", 3))


def test_shutdown_frees_communicators_also_while_the_user_keeps_a_handle(tmp_path):
    killed_and_survivors(run_ranks(tmp_path, "killed at rest", 3))
    results = run_ranks(tmp_path, "left at rest", 2)
    assert [code for code, _, _ in results] == [0, 0], results


def test_a_rank_that_is_killed_while_ranks_are_connected_is_named_to_all(tmp_path):
    def apart(rank):  # the fakes do not find each other
        (tmp_path / str(rank)).mkdir(exist_ok=True)
        return {"TMPDIR": str(tmp_path / str(rank))}

    killed_and_survivors(run_ranks(tmp_path, "killed while connecting", 3, apart))


def test_a_setting_of_the_network_that_differs_is_refused_by_init(tmp_path):
    for code, _, text in run_ranks(tmp_path, "", 2, lambda rank: {"FARANDOLE_NCCL_NETWORK": str(rank)}):
        assert code == 0, text
        assert "FARANDOLE_NCCL_NETWORK=0: rank 0 (" in text and "FARANDOLE_NCCL_NETWORK=1: rank 1 (" in text, text


def test_ranks_that_nccl_cannot_connect_are_told_at_the_deadline(tmp_path):
    def apart(rank):
        (tmp_path / str(rank)).mkdir(exist_ok=True)
        return {"TMPDIR": str(tmp_path / str(rank))}

    for code, _, text in run_ranks(tmp_path, "apart", 2, apart, FARANDOLE_TIMEOUT="2"):
        assert code == 0, text
        assert text.startswith("DeadlineError: allreduce 'grad' has waited"), text
        assert "for NCCL 2.18.3, which has not connected the ranks" in text


def test_two_ranks_on_one_gpu_are_refused_and_named(tmp_path):
    results = run_ranks(tmp_path, "shared GPU", 3, lambda rank: {"CUDA_VISIBLE_DEVICES": str(min(rank, 1))})
    for code, _, text in results:
        assert code == 0, text
        assert "invalid usage (5)" in text and "use the same GPU: give each its own" in text, text
        assert "rank 1 (" in text and "rank 2 (" in text, text


def test_versions_of_nccl_that_differ_are_refused_by_init(tmp_path):
    results = run_ranks(tmp_path, "", 2, lambda rank: {"FAKE_NCCL_VERSION": str(21803 + 100 * rank)})
    for code, _, text in results:
        assert code == 0, text
        assert "NCCL 2.18.3" in text and "NCCL 2.19.3" in text, text


def test_a_gpu_without_memory_for_a_result_is_an_error_of_all(tmp_path):
    for code, _, text in run_ranks(tmp_path, "no memory", 2):
        assert code == 0, text
        assert "rank 1" in text and "CUDA_ERROR_OUT_OF_MEMORY (2)" in text, text


def test_an_error_that_comes_up_while_the_gpu_works_is_told_to_all(tmp_path):
    for code, _, text in run_ranks(tmp_path, "asynchronous error", 2):
        assert code == 0, text
        assert "rank 1 (" in text and "unhandled cuda error (1)" in text, text
