"""torch.profiler shows our calls and the optimizer's phases."""

import json
import os

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import world
from torch.profiler import ProfilerActivity, profile
from versions import needs

pytestmark = pytest.mark.timeout(180)

SYNCHRONIZE = "farandole.DistributedOptimizer.synchronize"


def spans(trace):
    """(begin, end) in microseconds, by name; those of one name in order."""
    found = {}
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    for event in sorted((each for each in events if each.get("ph") == "X"), key=lambda each: each["ts"]):
        found.setdefault(event["name"], []).append((event["ts"], event["ts"] + event["dur"]))
    return found


def profiled(folder, action):
    path = os.path.join(folder, f"trace{hvd.rank()}.json")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        action()
    profiler.export_chrome_trace(path)
    return spans(path)


def trained(**options):
    """A step of a model with two parameters, "weight" and "bias"."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()

    return step


def is_inside(inner, outer):
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def a_step(folder):
    step = trained(overlap=True)
    step()  # the first, in which nothing is submitted before the ranks have compared what they reduce
    found = profiled(folder, step)
    ((outer),) = found[SYNCHRONIZE]
    for name in ("weight", "bias"):
        (begin,) = found[f"farandole.allreduce.begin gradient.{name}"]
        (wait,) = found[f"farandole.allreduce.wait gradient.{name}"]
        assert begin[1] <= outer[0], "submitted in backward"
        assert is_inside(wait, outer)
    assert is_inside(outer, found["Optimizer.step#SGD.step"][0])

    grouped = profiled(folder, trained(num_groups=1))
    assert len(grouped["farandole.allreduce.begin gradients.weight"]) == 1

    adasum = profiled(folder, trained(op=hvd.Adasum))
    (outer,) = adasum["farandole.DistributedOptimizer.combine"]
    assert is_inside(adasum["farandole.allreduce.wait delta.weight"][0], outer)


def operations():
    """Each kind, blocking and not, with results as without a profiler."""
    ones, rank, size = torch.ones(2 * hvd.size(), 2), hvd.rank(), hvd.size()
    assert torch.equal(hvd.allreduce(ones, op=hvd.Sum, name="sum"), ones * size)
    assert torch.equal(hvd.allreduce(ones[:, :1], op=hvd.Sum, name="strided"), ones[:, :1] * size)
    assert hvd.allgather(torch.full((1,), rank), name="rows").tolist() == list(range(size))
    handle = hvd.allgather_async(torch.full((1,), rank), name="rows")
    assert hvd.synchronize(handle).tolist() == list(range(size))
    assert hvd.poll(handle)
    assert hvd.broadcast(torch.full((2,), rank), 1, name="root").tolist() == [1, 1]
    assert hvd.alltoall(torch.arange(size), name="column").tolist() == [rank] * size
    received = hvd.alltoall(torch.arange(size), [1] * size, name="split")
    assert [each.tolist() for each in received] == [[rank] * size, [1] * size]
    assert torch.equal(hvd.reducescatter(ones, op=hvd.Sum, name="mine"), torch.full((2, 2), float(size)))
    leaf = torch.ones(3, requires_grad=True)
    hvd.allreduce_async(leaf, name="graph").wait().sum().backward()
    assert leaf.grad.tolist() == [1, 1, 1]


def every_operation(folder):
    operations()
    found = profiled(folder, operations)
    for name in ("allreduce sum", "allreduce strided", "allgather.begin rows", "allgather.wait rows", "broadcast root"):
        assert f"farandole.{name}" in found, sorted(found)
    for name in ("alltoall.wait column", "alltoall.wait split", "reducescatter.wait mine", "allreduce.wait graph"):
        assert f"farandole.{name}" in found, sorted(found)
    assert len(found["farandole.allgather.wait rows"]) == 2
    assert len(found["farandole.allreduce sum"]) == 1, "one span each"
    assert "farandole.allreduce.begin strided" not in found


def data_parallel(folder):
    import farandole_torch.distributed  # noqa: F401

    if not dist.is_initialized():  # by another test in these processes
        dist.init_process_group("farandole", init_method="farandole://")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    found = profiled(folder, lambda: model(torch.ones(4, 3)).sum().backward())
    assert len(found["farandole.allreduce.begin"]) == 1  # of the bucket


def an_error(folder):
    """Is the call's own, and the job goes on."""

    def disagree():
        with pytest.raises(hvd.MismatchError, match=r"test_profiler\.py"):
            hvd.allreduce(torch.ones(1 + hvd.rank()), name="uneven")
        handle = hvd.allreduce_async(torch.ones(1 + hvd.rank()), name="uneven later")
        with pytest.raises(hvd.MismatchError):
            handle.wait()

    assert "farandole.allreduce.wait uneven later" in profiled(folder, disagree)
    operations()


@pytest.mark.parametrize("check", [a_step, every_operation, an_error])
def test_spans(tmp_path, check):
    world(2).run(check, str(tmp_path))


@needs(2, 7, "what the backend needs")
def test_spans_of_the_backend(tmp_path):
    world(2).run(data_parallel, str(tmp_path))


def waited_for_after():
    """A handle from a profiled part is one like any other."""
    with profile(activities=[ProfilerActivity.CPU]):
        handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum)
    assert not torch.autograd._profiler_enabled()
    assert isinstance(handle, hvd.Handle)
    assert handle.map(lambda result: result + 1).wait().tolist() == [hvd.size() + 1] * 2
    with pytest.raises(TypeError, match="no handle"):
        hvd.synchronize(torch.ones(2))


def test_a_handle_outlives_the_profiler():
    world(2).run(waited_for_after)
