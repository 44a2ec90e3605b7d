"""DistributedOptimizer together with what training scripts use beside it."""

import copy
import pickle

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from versions import needs

pytestmark = pytest.mark.timeout(180)


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()


def inputs_of(rank, step=0):
    return torch.sin(torch.arange(12.0).reshape(3, 4) * (rank + 1) + step).double()


def loss_of(model, inputs):
    return model(inputs).square().mean()


def average_step(model, optimizer, inputs_of_ranks, clip=None):
    """A step of one process with the average of the ranks' losses."""
    optimizer.zero_grad()
    (sum(loss_of(model, each) for each in inputs_of_ranks) / len(inputs_of_ranks)).backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()


def same(model, other):
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(model.parameters(), other.parameters(),
                                                                         strict=True))  # fmt: skip


class OwnScaler(torch.amp.GradScaler):
    """As FSDP's, it unscales with code of its own."""

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16=True):
        given = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        torch._amp_foreach_non_finite_check_and_unscale_(given, found_inf, inv_scale)
        return {found_inf.device: found_inf}

    def rate(self, optimizer):
        return optimizer.param_groups[0]["lr"]


def scaled(way, fused, kind=torch.amp.GradScaler):
    """GradScaler in each of the ways that scripts use it; on rank 1 alone a gradient overflows in step 1."""
    model, whole = network(), network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, fused=fused), model.named_parameters()
    )
    plain = torch.optim.SGD(whole.parameters(), lr=0.1)
    scaler = kind("cpu", init_scale=8.0, growth_interval=1000)
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, inputs_of(hvd.rank(), step))
        scaler.scale(loss * (float("inf") if (step, hvd.rank()) == (1, 1) else 1.0)).backward()
        if way == "synchronize":
            optimizer.synchronize()
        if way != "step alone":
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        if way == "synchronize":
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
        if step != 1:
            everybody = [inputs_of(rank, step) for rank in range(hvd.size())]
            average_step(whole, plain, everybody, None if way == "step alone" else 0.05)
        assert same(model, whole), step
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs(2, 4, "fused SGD on the host"))])
@pytest.mark.parametrize("way", ["step alone", "unscale", "synchronize"])
def test_all_ranks_skip_a_step_that_overflows_on_one(way, fused):
    world(2).run(scaled, way, fused)


@pytest.mark.parametrize("way", ["step alone", "unscale"])
def test_scalers_that_derive_from_it_are_known_by_what_they_do(way):
    world(2).run(scaled, way, False, OwnScaler)


def looked_at_by_a_scaler():
    """A scaler that only looks at the optimizer, on one rank, between backward and step."""
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    scaler = OwnScaler("cpu")
    scaler.scale(loss_of(model, inputs_of(hvd.rank(), 0))).backward()
    if hvd.rank() == 0:
        assert scaler.rate(optimizer) == 0.1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    scaler.step(optimizer)


def test_a_scaler_that_does_not_unscale_reduces_nothing():
    world(2).run(looked_at_by_a_scaler)


def the_same_object():
    model = network()
    plain = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}], lr=0.1)
    groups, scheduler = plain.param_groups, torch.optim.lr_scheduler.OneCycleLR(plain, [0.1, 0.5], total_steps=9)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert optimizer is plain and optimizer.param_groups is groups and scheduler.optimizer is optimizer
    assert isinstance(optimizer, torch.optim.SGD) and isinstance(optimizer, torch.optim.Optimizer)
    late = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    whole = network()
    other = torch.optim.SGD([{"params": whole[0].parameters()}, {"params": whole[2].parameters(), "lr": 0.5}], lr=0.1)
    other_scheduler = torch.optim.lr_scheduler.OneCycleLR(other, [0.1, 0.5], total_steps=9)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, inputs_of(hvd.rank(), step)).backward()
        optimizer.step(), scheduler.step()
        average_step(whole, other, [inputs_of(rank, step) for rank in range(hvd.size())])
        other_scheduler.step()
        assert [group["lr"] for group in groups] == [group["lr"] for group in other.param_groups]
    assert same(model, whole)
    late.step(1.0), late.step(2.0)
    assert groups[0]["lr"] < other.param_groups[0]["lr"]


def test_the_optimizer_stays_the_object_that_schedulers_hold():
    world(2).run(the_same_object)


def uneven():
    """Rank r has r + 2 batches; the gradients of those that are done count as zeros."""
    model, whole = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for step in range(hvd.rank() + 2):
        optimizer.zero_grad()
        loss_of(model, inputs_of(hvd.rank(), step)).backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    plain = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(hvd.size() + 1):
        plain.zero_grad()
        losses = [loss_of(whole, inputs_of(rank, step)) for rank in range(hvd.size()) if step < rank + 2]
        (sum(losses) / hvd.size()).backward()
        plain.step()
    assert last == hvd.size() - 1 and same(model, whole)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_fewer_batches_join(ranks):
    world(ranks).run(uneven)


def compiled(wraps_first):
    model, whole = network(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if wraps_first:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), overlap=True)
    faster = torch.compile(model, backend="aot_eager")
    if not wraps_first:
        optimizer = hvd.DistributedOptimizer(optimizer, faster.named_parameters(), overlap=True)
    plain = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(faster, inputs_of(hvd.rank(), step)).backward()
        assert bool(optimizer.submitted_bytes) == (step > 0)  # while backward runs, once the ranks have agreed
        optimizer.step()
        average_step(whole, plain, [inputs_of(rank, step) for rank in range(hvd.size())])
    assert same(model, whole)


def test_compiled_models():
    world(2).run(compiled, True)
    world(2).run(compiled, False)


class Rows(torch.utils.data.Dataset):
    """The view that a worker of a data loader has of its rank's world."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        try:
            hvd.allreduce(torch.ones(1))
        except hvd.NotInitializedError as error:
            return torch.full((4,), float(index)).double(), str(error)
        return torch.zeros(4).double(), "took part"


def forked():
    model, whole = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
    plain = torch.optim.SGD(whole.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Rows(), 2, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for rows, told in loader:
            assert all("forked child" in text for text in told)
            optimizer.zero_grad()
            loss_of(model, rows + hvd.rank()).backward()
            optimizer.step()
            average_step(whole, plain, [rows + rank for rank in range(hvd.size())])
    assert same(model, whole)


def test_workers_of_data_loaders_may_be_forked():
    world(2).run(forked)


def strided_parameters():
    """Parameters, and gradients, that are not contiguous."""
    base = torch.arange(24.0).reshape(4, 6).double()
    parameters = [torch.nn.Parameter(base.clone().t()), torch.nn.Parameter(base.clone()[:, ::2])]
    conv = torch.nn.Conv2d(2, 3, 3).double().to(memory_format=torch.channels_last)
    hvd.broadcast_parameters(conv.state_dict(), 0)
    start = conv.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*parameters, *conv.parameters()], lr=1.0), op=hvd.Sum)
    image = torch.ones(1, 2, 5, 5).double().to(memory_format=torch.channels_last)
    (sum(each.sum() for each in parameters) * (hvd.rank() + 1) + conv(image).sum()).backward()
    optimizer.step()
    total = sum(rank + 1 for rank in range(hvd.size()))
    assert torch.equal(parameters[0], base.t() - total) and torch.equal(parameters[1], base[:, ::2] - total)
    assert torch.allclose(conv.weight, start - 9.0 * hvd.size())


def test_strided_parameters_and_gradients():
    world(2).run(strided_parameters)


def added(op):
    """A new head after some steps, as in fine-tuning; names come from those given at first, else from the place."""
    model = network()
    names = list(model.named_parameters())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1), names, op=op)
    stranger, named = (torch.nn.Parameter(torch.ones(2).double()) for _ in range(2))
    for step in range(4):
        optimizer.zero_grad()
        (loss_of(model, inputs_of(hvd.rank(), step)) + (stranger + named).sum() * hvd.rank()).backward()
        if step == 0 and op != hvd.Adasum:
            with pytest.raises(ValueError, match=r"add_param_group\(\) came between"):
                optimizer.add_param_group({"params": model[2].parameters()})
        optimizer.step()
        if step == 0:
            model[2].zero_grad()
            optimizer.add_param_group({"params": model[2].parameters()})
        if step == 1:
            stranger.grad = named.grad = None
            optimizer.add_param_group({"params": [stranger, named], "lr": 1.0})
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": model[2].parameters()})
    assert optimizer._farandole._names == ["0.weight", "0.bias", "2.weight", "2.bias", "parameter.4", "parameter.5"]
    states = hvd.allgather_object([each.tolist() for each in (*model.parameters(), stranger, named)])
    assert all(state == states[0] for state in states)
    if op != hvd.Adasum:
        assert stranger.tolist() == pytest.approx([1 - 2 * sum(range(hvd.size())) / hvd.size()] * 2)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=str)
def test_parameters_can_be_added(op):
    world(2).run(added, op)


def named_in_the_optimizer():
    model = network()
    plain = torch.optim.SGD(model[0].named_parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain)
    optimizer.add_param_group({"params": model[2].named_parameters()})  # with the same names
    assert optimizer._farandole._names == ["weight", "bias", "parameter.2", "parameter.3"]
    loss_of(model, inputs_of(hvd.rank())).backward()
    optimizer.step()


@needs(2, 6, "optimizers that know names")
def test_names_that_the_optimizer_knows_are_used():
    world(2).run(named_in_the_optimizer)


def all_at_once():
    """A process set, compression, accumulation, groups, predivision and clipping."""
    pair = hvd.add_process_set([0, 2])
    model, whole = network(), network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.01),
        model.named_parameters(),
        compression=hvd.Compression.bf16,
        backward_passes_per_step=2,
        gradient_predivide_factor=2.0,
        groups=2,
        process_set=pair,
    )
    plain = torch.optim.Adam(whole.parameters(), lr=0.01)
    members = pair.ranks if pair.included() else [hvd.rank()]
    for step in range(3):
        optimizer.zero_grad()
        for half in range(2):
            loss_of(model, inputs_of(hvd.rank(), 2 * step + half)).backward()
        optimizer.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        plain.zero_grad()
        for half in range(2):
            (sum(loss_of(whole, inputs_of(rank, 2 * step + half)) for rank in members) / len(members)).backward()
        expected = torch.nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
        plain.step()
        assert torch.allclose(norm, expected, rtol=0.02)
    states = hvd.allgather_object([parameter.tolist() for parameter in model.parameters()])
    assert states[0] == states[2]
    for got, want in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.allclose(got, want, atol=0.02)
    hvd.remove_process_set(pair)


def test_all_options_at_once_in_a_process_set():
    world(3).run(all_at_once)


def a_copy():
    model = network()
    copy.deepcopy(model), copy.deepcopy(model.state_dict())
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    twin = copy.deepcopy(model)
    loss_of(twin, inputs_of(0)).backward()  # hooks are not copied: the twin is not this optimizer's
    assert optimizer.submitted_bytes == 0
    loss_of(model, inputs_of(hvd.rank())).backward()
    optimizer.step()


def test_copies_of_a_model_are_left_alone():
    world(2).run(a_copy)


def refused_copies():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="keep its state_dict"):
            copied(optimizer)


def test_copies_of_an_optimizer_whose_steps_would_reduce_nothing_are_refused():
    world(2).run(refused_copies)


def searched():
    """The ranks' losses differ by far: judged by its own, each would call the closure as often as it likes."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1).double()
    generator = torch.Generator().manual_seed(hvd.rank())
    rows = torch.randn(20, 3, generator=generator).double()
    answers = torch.randn(20, 1, generator=generator).double() * (10 * hvd.rank() + 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1, line_search_fn="strong_wolfe")
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def closure():
        optimizer.zero_grad()
        loss = (model(rows) - answers).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    everyones_rows, everyones_answers = hvd.allgather(rows), hvd.allgather(answers)
    ones = torch.ones(len(everyones_rows), 1, dtype=torch.float64)
    best = torch.linalg.lstsq(torch.cat([everyones_rows, ones], 1), everyones_answers).solution
    assert torch.allclose(torch.cat([model.weight.T, model.bias[None]]), best, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ranks", [2, 3])
def test_line_searches_judge_by_the_common_loss(ranks):
    world(ranks).run(searched)
