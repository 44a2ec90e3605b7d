"""no_sync: accumulate over several batches, and send once."""

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from training import goes_on, loss_of, network, wrapped

pytestmark = pytest.mark.timeout(180)
BATCHES, ROWS = 3, 4


def part(rank, batch):
    """The rows of one rank's batch, which no other has."""
    numbers = torch.arange(float(ROWS * 4)).reshape(ROWS, 4) + 100 * rank + 10 * batch
    return torch.sin(numbers).double()


def of_one_process(ranks):
    """The parameters after three steps, each by one batch that holds all rows of all ranks."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.cat([part(rank, batch) for rank in range(ranks) for batch in range(BATCHES)])
    for _ in range(3):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def accumulated(options, scales=False):
    """The same by ranks that accumulate; nothing is on its way before the last batch."""
    model = network()
    optimizer = wrapped(model, **options)
    scaler = torch.amp.GradScaler("cpu", enabled=scales)
    for _ in range(3):
        optimizer.zero_grad()
        for batch in range(BATCHES - 1):
            with hvd.no_sync(optimizer):
                scaler.scale(model(part(hvd.rank(), batch)).square().mean() / BATCHES).backward()
            assert optimizer.submitted_bytes == 0
        scaler.scale(model(part(hvd.rank(), BATCHES - 1)).square().mean() / BATCHES).backward()
        scaler.step(optimizer)
        scaler.update()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"gradient_predivide_factor": 2.0}], ids=str)
def test_steps_are_those_of_one_process_with_all_rows(ranks, options):
    expected = of_one_process(ranks)
    for parameters in world(ranks).run(accumulated, options):
        assert torch.allclose(parameters, expected, rtol=0, atol=1e-12)


def test_a_scaled_loss_accumulates_too():
    for parameters in world(2).run(accumulated, {}, True):
        assert torch.allclose(parameters, of_one_process(2), rtol=0, atol=1e-10)


def in_branches():
    """The last batch reaches one layer only, another on each rank; the rest was reached inside."""
    first, second = (torch.nn.Linear(1, 1, bias=False).double() for _ in range(2))
    torch.nn.init.zeros_(first.weight), torch.nn.init.zeros_(second.weight)
    both = [*first.parameters(), *second.parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(both, lr=1.0))
    ones = torch.ones(1, 1).double()
    with hvd.no_sync(optimizer):
        (first(ones) + second(ones)).backward()
        with hvd.no_sync(optimizer):
            second(ones).backward()
        second(ones).backward()
    (second if hvd.rank() else first)(ones).backward()
    optimizer.step()
    return first.weight.item(), second.weight.item()


def test_parameters_that_the_last_batch_does_not_reach_are_reduced():
    assert world(2).run(in_branches) == [(-1.5, -3.5)] * 2


def passes():
    """With two passes to a step, those inside are not counted."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), backward_passes_per_step=2)
    for inside in (True, True, False, False):
        with hvd.no_sync(optimizer) if inside else torch.enable_grad():
            (weight * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
    return weight.item()


def test_passes_inside_are_not_counted():
    assert world(2).run(passes) == [-6.0, -6.0]


def mistakes():
    model = network()
    optimizer = wrapped(model)
    for call in (optimizer.step, optimizer.synchronize):
        with hvd.no_sync(optimizer):
            loss_of(model).backward()
            with pytest.raises(ValueError, match=r"inside no_sync\(\): leave it before"):
                call()
        goes_on(model, optimizer)
    loss_of(model).backward()
    with pytest.raises(ValueError, match=r"no_sync\(\) came between backward\(\) and step\(\)"), hvd.no_sync(optimizer):
        raise AssertionError
    optimizer.step()
    goes_on(model, optimizer)


def test_mistakes_are_refused_and_training_goes_on():
    world(2).run(mistakes)


def test_a_plain_optimizer_is_refused():
    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="that DistributedOptimizer has returned, not SGD"), hvd.no_sync(plain):
        raise AssertionError


def adasum():
    model = network()
    optimizer = wrapped(model, op=hvd.Adasum)
    with hvd.no_sync(optimizer):
        loss_of(model).backward()
        with pytest.raises(ValueError, match="with op=Adasum it reduces what it has changed"):
            optimizer.step()
    optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).tolist()


def test_adasum_steps_outside_only():
    first, second = world(2).run(adasum)
    assert first == second
