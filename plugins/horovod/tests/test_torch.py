"""horovod.torch: a program written for Horovod runs on two ranks, by horovodrun."""

import farandole_torch
import horovod.torch as hvd
import pytest
import torch
from by_horovodrun import run_by_two
from farandole.testing import spawn
from names_of_horovod import OF_TORCH, missing, of_another_package

# Written for Horovod 0.28.1 and PyTorch.
SCRIPT = """
import torch
import horovod.torch as hvd
from horovod.torch.mpi_ops import synchronize

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16, op=hvd.Average
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for step in range(3):
    optimizer.zero_grad()
    model(torch.rand(8, 4)).square().mean().backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
weights = hvd.allgather(torch.cat([each.detach().ravel() for each in model.parameters()])[None])
total = synchronize(hvd.allreduce_async(torch.ones(1), op=hvd.Sum))
print("equal", bool((weights == weights[0]).all()), "total", total.item(), "of", hvd.size(), flush=True)
"""


def test_no_name_is_missing():
    assert missing(OF_TORCH) == []


def test_names_are_those_of_farandole():
    ours = {"init", "DistributedOptimizer", "_DistributedOptimizer", "Compressor"}
    ours |= {"handle_average_backwards_compatibility"}
    assert of_another_package(OF_TORCH, ours) == []
    assert hvd.init.__wrapped__ is farandole_torch.init
    assert hvd.mpi_ops.__name__ == "horovod.torch.mpi_ops"


def test_a_script_runs_unchanged(tmp_path):
    lines, errors = run_by_two(tmp_path / "train.py", SCRIPT)
    assert lines == [f"[{rank}] equal True total 2.0 of 2" for rank in (0, 1)]
    assert errors == ""


def _wrapped_and_compressed():
    class Halves(hvd.compression.Compressor):
        @staticmethod
        def compress(tensor):
            return tensor.half(), tensor.dtype

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.to(ctx)

    hvd.init()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0))
    mean = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), compression=Halves)
    return "horovod" in str(type(optimizer)), isinstance(optimizer, torch.optim.SGD), mean.tolist()


def test_an_optimizer_tells_that_it_is_wrapped_and_compressors_are_derived():
    assert spawn(2, _wrapped_and_compressed, timeout=60) == [(True, True, [1.5])] * 2


def test_a_wrong_call_names_the_line_of_the_program():
    def call():
        hvd.init()
        try:
            hvd.allreduce(torch.ones(1 + hvd.rank()), name="uneven")
        except hvd.HorovodInternalError:
            return "recoverable"
        except ValueError as error:
            return str(error)
        return ""

    first, second = spawn(2, call, timeout=60)
    assert "test_torch.py" in first and "test_torch.py" in second


@pytest.mark.parametrize(
    ("use", "error"),
    [
        ("import horovod; horovod.data", AttributeError),
        ("import horovod.data", ImportError),
    ],
)
def test_the_parts_that_are_lacking_say_what_to_do_instead(use, error):
    with pytest.raises(error, match=r"^Farandole has no horovod\.[a-z._]+: .+"):
        exec(use, {})


def test_an_unknown_name_is_told_as_python_does():
    with pytest.raises(AttributeError, match=r"module .horovod\.torch. has no attribute .no_such_name."):
        hvd.no_such_name  # noqa: B018
