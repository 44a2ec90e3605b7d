"""Training as a whole: overlap, identical parameters, and the same loss as one process with the same global batch."""

import os

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(300)
GLOBAL_BATCH = 24  # divisible by 1, 2, 3 and 4


def network(dtype):
    torch.manual_seed(11)
    layers = [torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3)]
    return torch.nn.Sequential(*layers).to(dtype)


def batch(step, dtype):
    """This rank's rows of the global batch of a step."""
    generator = torch.Generator().manual_seed(1000 + step % 5)
    inputs = torch.randn(GLOBAL_BATCH, 6, generator=generator, dtype=torch.float64)
    targets = torch.stack([inputs.sum(1), inputs[:, 0] * inputs[:, 1], inputs[:, 2].sin()], 1)
    rows = slice(hvd.rank() * GLOBAL_BATCH // hvd.size(), (hvd.rank() + 1) * GLOBAL_BATCH // hvd.size())
    return inputs[rows].to(dtype), targets[rows].to(dtype)


def train(dtype, steps):
    """The losses of the global batch, by step."""
    model = network(dtype)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step, dtype)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach().double()).item())
    return losses


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-2)])
def test_any_number_of_ranks_trains_alike(dtype, tolerance):
    runs = {ranks: world(ranks).run(train, getattr(torch, dtype), 50)[0] for ranks in (1, 2, 3, 4)}
    assert runs[1][-1] <= runs[1][0] / 2
    for ranks, losses in runs.items():
        assert losses[-1] <= losses[0] / 2
        worst = max(abs(a - b) for a, b in zip(losses, runs[1], strict=True))
        assert worst <= tolerance, f"{ranks} ranks differ from one by {worst}"


def overlap(overlaps):
    """Bytes that were submitted before the gradient of the first layer was computed, of all bytes."""
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), overlap=overlaps)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    model(torch.randn(4, 64)).square().mean().backward()
    optimizer.step()  # the first, before which the ranks compare what they reduce
    seen = []
    model[0].weight.register_hook(lambda gradient: seen.append(optimizer.submitted_bytes))
    optimizer.zero_grad()
    model(torch.randn(4, 64)).square().mean().backward()
    at_return = optimizer.submitted_bytes
    optimizer.step()
    return seen[0], at_return, sum(4 * parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_travel_while_backward_runs(ranks):
    for before_the_last_layer, at_return, everything in world(ranks).run(overlap, True):
        assert before_the_last_layer >= everything / 2
        assert at_return == everything


def chosen_overlap():
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, cores[: hvd.local_size()])
        crowded = overlap(None)[:2]
        os.sched_setaffinity(0, cores)
        with_idle_cores = overlap(None)[:2]
    finally:
        os.sched_setaffinity(0, cores)
    return crowded, with_idle_cores, len(cores)


def test_gradients_travel_at_the_end_where_every_core_runs_a_rank():
    assert all(result[:2] == (0, 0) for result in world(2).run(overlap, False))
    for crowded, with_idle_cores, cores in world(2).run(chosen_overlap):
        assert crowded == (0, 0)
        assert (with_idle_cores[1] > 0) == (cores > 2)


def diverge(broadcasts):
    """Returns whether parameters are equal after a few steps; they differ between the ranks unless broadcast first."""
    torch.manual_seed(100 + hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters())
    if broadcasts:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in range(5):
        inputs, targets = batch(step, torch.float32)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    bits = hvd.allgather_object([parameter.detach().numpy().tobytes() for parameter in model.parameters()])
    return all(each == bits[0] for each in bits)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_parameters_stay_identical_bit_by_bit(ranks):
    assert world(ranks).run(diverge, True) == [True] * ranks


def test_without_the_broadcast_they_would_not():
    assert world(2).run(diverge, False) == [False] * 2


def metrics():
    weight = torch.nn.Parameter(torch.ones(1))
    return hvd.average_metrics({"loss": (weight * hvd.rank()).sum(), "half": torch.tensor([1.0]).bfloat16()})


def test_tensors_of_one_element_are_metrics():
    assert world(2).run(metrics) == [{"loss": 0.5, "half": 1.0}] * 2


def checkpoint(path):
    """Rank 0's model and momentum, on every rank."""
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, float(hvd.rank()))
    hvd.save_checkpoint(path, lambda path: torch.save({"model": model.state_dict(), "epoch": 3}, path))
    state = hvd.load_checkpoint(path, torch.load)
    model.load_state_dict(state["model"])
    return model.weight.tolist(), state["epoch"]


def test_a_checkpoint_of_rank_0_reaches_all(tmp_path):
    assert world(2).run(checkpoint, str(tmp_path / "model.pt")) == [([[0.0, 0.0]], 3)] * 2
