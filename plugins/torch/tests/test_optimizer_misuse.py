"""Mistakes in a training loop raise an error that names them, and the same processes train on."""

import copy
import os
import signal
import tempfile
import threading
import time

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from training import goes_on, loss_of, network, wrapped

pytestmark = pytest.mark.timeout(180)


OPTIONS = {
    "each alone": {},
    "grouped": {"groups": 2},
    "all in one": {"groups": 1, "backward_passes_per_step": 2},
    "compressed": {"compression": hvd.Compression.bf16},
}


def one_pass_too_many(options):
    """On all ranks, then on rank 1 alone."""
    model = network()
    optimizer = wrapped(model, **options)
    passes = options.get("backward_passes_per_step", 1)
    for guilty in (range(hvd.size()), [1]):
        for _ in range(passes):
            loss_of(model).backward()
        if hvd.rank() in guilty:
            with pytest.raises(ValueError, match=rf"'2\.\w+' was computed again .*per_step is {passes}; raise it"):
                loss_of(model).backward()
        optimizer.synchronize()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    if "compression" not in options:
        goes_on(model, optimizer)


def one_pass_too_few():
    """Rank 0 steps after one of two passes: what it has is reduced."""
    model = network()
    optimizer = wrapped(model, backward_passes_per_step=2)
    for _ in range(1 if hvd.rank() == 0 else 2):
        loss_of(model).backward()
    optimizer.step()
    optimizer.set_backward_passes_per_step(1)
    goes_on(model, optimizer)


def no_gradient_on_one_rank(options):
    """For some parameters, for all, and without any backward at all."""
    model = network()
    optimizer = wrapped(model, **options)
    for used in ([2], [], None):
        before = copy.deepcopy(model)
        if hvd.rank() != 0 or used:
            hidden = torch.ones(1, 8).double() if hvd.rank() == 0 else model[:2](torch.ones(1, 4).double())
            for _ in range(options.get("backward_passes_per_step", 1)):
                model[2](hidden.detach() if hvd.rank() == 0 else hidden).sum().backward(retain_graph=True)
        elif used is not None:
            sum(parameter.sum() * 0 for parameter in model[2].parameters()).backward()
        optimizer.step()
        assert not torch.equal(before[0].bias, model[0].bias)
        assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1
        optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)


def a_hook_that_raises(options):
    """The user's, in the middle of backward, on rank 0 alone; the gradients that are on their way arrive."""
    model = network()
    optimizer = wrapped(model, **options)

    def fails(gradient):
        raise ArithmeticError("the user's own")

    hook = model[0].weight.register_hook(fails) if hvd.rank() == 0 else None
    for _ in range(options.get("backward_passes_per_step", 1)):
        if hook is not None:
            with pytest.raises(ArithmeticError, match="the user's own"):
                loss_of(model).backward()
        else:
            loss_of(model).backward()
    if hook is not None:
        hook.remove()
        if optimizer._farandole.in_flight:
            with pytest.raises(ValueError, match=r"call synchronize\(\) first"):
                optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(1)
    if "compression" not in options:
        goes_on(model, optimizer)


def a_step_hook_that_raises():
    model = network()
    optimizer = wrapped(model)

    def fails(*_):
        raise ArithmeticError("the user's own")

    hook = optimizer.register_step_pre_hook(fails)
    loss_of(model).backward()
    with pytest.raises(ArithmeticError):
        optimizer.step()
    hook.remove()
    goes_on(model, optimizer)


def a_closure_that_raises():
    model = network()
    optimizer = wrapped(model)

    def closure():
        loss = loss_of(model)
        loss.backward()
        raise ArithmeticError("the user's own")

    with pytest.raises(ArithmeticError):
        optimizer.step(closure)
    with pytest.raises(ValueError, match="call synchronize"):
        optimizer.zero_grad()
    optimizer.synchronize()
    goes_on(model, optimizer)


def two_optimizers_for_two_parts():
    """As in adversarial training: backward of one loss passes through the other part."""
    model = network()
    first, second = (
        hvd.DistributedOptimizer(
            torch.optim.SGD(part.parameters(), lr=0.1), [(f"{i}.{n}", p) for n, p in part.named_parameters()]
        )
        for i, part in enumerate((model[0], model[2]))
    )
    loss_of(model).backward()
    first.step()
    with pytest.raises(ValueError, match=r"call synchronize\(\) first"):
        second.zero_grad()
    second.synchronize()
    second.zero_grad(), first.zero_grad()
    loss_of(model).backward()
    first.step(), second.step()
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1


def a_model_that_changes_its_dtype(guilty):
    """On all ranks it is reduced as it is now; on one rank alone all are told."""
    model = network()
    optimizer = wrapped(model)
    if hvd.rank() in guilty:
        model.float()
    given = torch.ones(1, 4, dtype=model[0].weight.dtype)
    model(given).sum().backward()
    if len(guilty) == hvd.size():
        optimizer.step()
        return
    with pytest.raises(hvd.MismatchError, match=r"gradient\.\d\.\w+.*rank 0.*float(32|64).*rank 1.*float(32|64)"):
        optimizer.step()
    model.double()
    for parameter in model.parameters():
        parameter.grad = None
    goes_on(model, optimizer)


def a_model_with_another_layer_on_one_rank():
    model = network()
    if hvd.rank() == 1:
        model[2] = torch.nn.Linear(8, 3).double()
    optimizer = wrapped(model)
    loss_of(model).backward()
    with pytest.raises(hvd.MismatchError, match=r"gradient\.2\.(weight|bias).*rank 0.*rank 1"):
        optimizer.synchronize()
    model[2] = torch.nn.Linear(8, 2).double()
    for parameter in model.parameters():
        parameter.grad = None
    goes_on(model, wrapped(model))


def parameters_that_are_frozen_and_thawed():
    model = network()
    optimizer = wrapped(model, groups=1)
    for frozen in (True, False, True):
        model[0].requires_grad_(not frozen)
        before = model[0].weight.detach().clone()
        loss_of(model).backward()
        optimizer.step()
        assert torch.equal(model[0].weight, before) == frozen
        assert (model[0].weight.grad is None) == frozen
        optimizer.zero_grad()


def steps_out_of_order():
    model = network()
    optimizer = wrapped(model)
    loss_of(model).backward()
    with pytest.raises(ValueError, match=r"zero_grad\(\) came between backward\(\) and step\(\)"):
        optimizer.zero_grad()
    with (
        pytest.raises(ValueError, match=r"under skip_synchronize\(\) came while gradients"),
        optimizer.skip_synchronize(),
    ):
        optimizer.step()
    optimizer.synchronize()
    optimizer.synchronize()  # of averages: again the average
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.step()  # without a backward in between
    goes_on(model, optimizer)


def gradients_that_cannot_be_reduced():
    """A parameter of a type without reductions, on all ranks; the others' gradients arrive."""
    real, odd = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2, dtype=torch.complex32))
    optimizer = torch.optim.SGD([real, odd], lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, [("real", real), ("odd", odd)], overlap=True)
    (real.sum() + torch.view_as_real(odd).float().sum()).backward()  # in the first step nothing is sent before it
    for _ in range(2):
        with pytest.raises(ValueError, match=r"dtype torch\.complex32"):
            optimizer.step()
    with pytest.raises(ValueError, match=r"dtype torch\.complex32"):
        (real.sum() + torch.view_as_real(odd).float().sum()).backward()
    with pytest.raises(ValueError, match=r"dtype torch\.complex32"):
        optimizer.step()
    odd.requires_grad_(False)
    real.grad = torch.full((2,), float(hvd.rank()))
    optimizer.synchronize()
    assert real.grad.tolist() == [sum(range(hvd.size())) / hvd.size()] * 2


def interrupted(options):
    """Ctrl-C on rank 0, which waits for rank 1, as in a notebook; then both go on where they were."""
    model = network()
    optimizer = wrapped(model, **options)
    (flag,) = set(hvd.allgather_object(os.path.join(tempfile.gettempdir(), f"farandole-{os.getpid()}"))[:1])
    if hvd.rank() == 0:
        loss_of(model).backward()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
        with pytest.raises(ValueError, match=r"call synchronize\(\) first"):
            optimizer.zero_grad()
        with open(flag, "w"):
            pass
    else:
        while not os.path.exists(flag):
            time.sleep(0.01)
        loss_of(model).backward()
    own = copy.deepcopy(model)
    optimizer.step()
    hvd.barrier()
    if hvd.rank() == 0:
        os.remove(flag)
    assert not torch.equal(own[0].weight, model[0].weight)
    goes_on(model, optimizer)


def gradients_that_change_under_way():
    """On all ranks, or on one, which alone is told; the step is lost, and the next one right."""
    model = network()
    optimizer = wrapped(model)
    goes_on(model, optimizer)

    def clip():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    def replace():
        model[2].bias.grad = model[2].bias.grad.clone()

    def forget():
        model[2].bias.grad = None

    for guilty in (range(hvd.size()), [1]):
        for change in (clip, replace, forget):
            loss_of(model).backward()
            if hvd.rank() not in guilty:
                optimizer.step()
            else:
                change()
                with pytest.raises(ValueError, match=r"of '\d\.\w+' was changed between .* call synchronize\(\) first"):
                    optimizer.step()
            optimizer.zero_grad()
            goes_on(model, optimizer)


def gradients_that_change_between_passes():
    """Before the last pass they are the rank's own: they may be scaled, and what a pass has left may be thrown away."""
    model = network()
    optimizer = wrapped(model, backward_passes_per_step=2)
    loss_of(model).backward()
    for parameter in model.parameters():
        parameter.grad.mul_(hvd.rank() + 1)
    own = [parameter.grad.clone() for parameter in model.parameters()]
    optimizer.synchronize()
    for parameter, alone in zip(model.parameters(), own, strict=True):
        assert torch.allclose(parameter.grad, hvd.allreduce(alone))
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.zero_grad()
    model[2](torch.ones(1, 8).double()).sum().backward()  # the others have been in the first pass only
    optimizer.step()
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1
    assert not model[0].weight.grad.any()


def outside_of_the_set():
    """A set that is gone, and one that is not there."""
    model = network()
    few = hvd.add_process_set([0, 2])
    optimizer = wrapped(model, process_set=few)
    loss_of(model).backward()
    optimizer.step()
    hvd.remove_process_set(few)
    with pytest.raises(ValueError, match="add_process_set"):
        wrapped(model, process_set=few)
    with pytest.raises(ValueError, match="is no ProcessSet"):
        wrapped(model, process_set=[0, 1])
    goes_on(model, wrapped(model))


WITH_OPTIONS = (one_pass_too_many, no_gradient_on_one_rank, a_hook_that_raises)
CASES = (
    one_pass_too_few,
    gradients_that_change_under_way,
    gradients_that_change_between_passes,
    a_step_hook_that_raises,
    a_closure_that_raises,
    two_optimizers_for_two_parts,
    a_model_with_another_layer_on_one_rank,
    parameters_that_are_frozen_and_thawed,
    steps_out_of_order,
    gradients_that_cannot_be_reduced,
)


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_and_training_goes_on(case):
    world(2).run(case)


@pytest.mark.parametrize("case", WITH_OPTIONS)
@pytest.mark.parametrize("options", OPTIONS)
def test_it_is_told_and_training_goes_on_with(case, options):
    world(2).run(case, OPTIONS[options])


@pytest.mark.parametrize("guilty", [[0], [1], [0, 1]], ids=str)
def test_a_model_may_change_its_dtype_on_all_ranks_alike(guilty):
    world(2).run(a_model_that_changes_its_dtype, guilty)


@pytest.mark.parametrize("options", [{}, {"groups": 1}], ids=str)
def test_control_c_leaves_a_state_to_go_on_from(options):
    world(2).run(interrupted, options)


def test_process_sets_that_are_not_there():
    world(3).run(outside_of_the_set)
