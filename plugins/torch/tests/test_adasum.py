"""DistributedOptimizer with op=Adasum: what each rank's own step changes is combined."""

import os
import signal
import threading

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
KINDS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.05),
}


def adasum(vectors):
    """Of the paper, in NumPy's words: R(first p) and R(rest), p the largest power of two below their number."""
    if len(vectors) == 1:
        return vectors[0]
    p = 1 << (len(vectors) - 1).bit_length() - 1
    a, b = adasum(vectors[:p]), adasum(vectors[p:])
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return a * (1 - dot / (2 * aa) if aa else 1.0) + b * (1 - dot / (2 * bb) if bb else 1.0)


def model_and_inputs(rank):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    return model, torch.sin(torch.arange(12.0).reshape(3, 4) * (rank + 1)).double()


def step(model, optimizer, inputs):
    optimizer.zero_grad()
    model(inputs).square().sum().backward()
    optimizer.step()


def like_the_paper(kind, ranks, process_set=None):
    """Three steps beside those of models of which each stands for a rank."""
    members = [model_and_inputs(rank) for rank in ranks]
    plain = [KINDS[kind](model.parameters()) for model, _ in members]
    model, inputs = model_and_inputs(hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        KINDS[kind](model.parameters()), model.named_parameters(), op=hvd.Adasum, process_set=process_set
    )
    for _ in range(3):
        starts = [parameter.detach().clone() for parameter in members[0][0].parameters()]
        for (own, given), each in zip(members, plain, strict=True):
            step(own, each, given)
        with torch.no_grad():
            for i, start in enumerate(starts):
                parameters = [list(own.parameters())[i] for own, _ in members]
                combined = start + adasum([parameter - start for parameter in parameters])
                for parameter in parameters:
                    parameter.copy_(combined)
        step(model, optimizer, inputs)
        for got, want in zip(model.parameters(), members[0][0].parameters(), strict=True):
            assert torch.allclose(got, want, rtol=1e-10, atol=1e-12)


def everywhere():
    for kind in KINDS:
        like_the_paper(kind, range(hvd.size()))


def in_a_set():
    pair = hvd.add_process_set([0, 2])
    like_the_paper("sgd", pair.ranks if pair.included() else [hvd.rank()], pair)
    hvd.remove_process_set(pair)


def with_what_else_there_is():
    """Compression, accumulation, clipping, closures, a parameter without gradient and a frozen one."""
    model, inputs = model_and_inputs(hvd.rank())
    model.append(torch.nn.Linear(1, 1).double())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    frozen = model[0].bias.requires_grad_(False)
    before, unused = frozen.clone(), model[3].weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), compression=hvd.Compression.fp16, backward_passes_per_step=2, op=5
    )

    def closure():
        optimizer.zero_grad()
        loss = model[:3](inputs).square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        model[:3](inputs).square().sum().backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert optimizer.step(closure) > 0
    assert torch.equal(frozen, before) and torch.equal(model[3].weight, unused)
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1


def misuse():
    model, inputs = model_and_inputs(hvd.rank())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    with pytest.raises(ValueError, match="not for op=Adasum"):
        optimizer.skip_synchronize().__enter__()
    model(inputs).square().sum().backward()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    with pytest.raises(ValueError, match=r"GradScaler cannot be used with op=Adasum.*step\(\)"):
        scaler.step(optimizer)
    with pytest.raises(ValueError, match="needs op=Average"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, gradient_predivide_factor=2.0
        )
    odd = torch.zeros(2 + (hvd.rank() == 1), requires_grad=True)
    other = hvd.DistributedOptimizer(torch.optim.SGD([odd], lr=0.1), [("odd", odd)], op=hvd.Adasum)
    odd.sum().backward()
    with pytest.raises(hvd.MismatchError, match=r"delta\.odd.*rank 0.*rank 1"):
        other.step()
    assert odd.tolist() == [0.0] * len(odd)  # as before the step, on all ranks
    optimizer.step()
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1


def interrupted():
    """Ctrl-C on rank 0, which waits for rank 1: the parameters are as before the step, until synchronize()."""
    model, inputs = model_and_inputs(hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
    )
    step(model, optimizer, inputs)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model(inputs).square().sum().backward()
    if hvd.rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
        assert all(map(torch.equal, model.parameters(), before))
        for call in (optimizer.zero_grad, optimizer.step, lambda: optimizer.add_param_group({"params": []})):
            with pytest.raises(ValueError, match=r"after a step\(\) that was interrupted: call synchronize\(\)"):
                call()
    else:  # some of rank 0's deltas are combined while it waits for the others
        names = [f"delta.{name}" for name, _ in list(model.named_parameters())[:2]]
        deltas = [torch.full_like(each, 1.0) for each in before[:2]]
        early = [
            hvd.allreduce_async(delta, name=name, op=hvd.Adasum) for delta, name in zip(deltas, names, strict=True)
        ]
        for handle in early:
            hvd.synchronize(handle)
    hvd.barrier()
    if hvd.rank() == 0:
        optimizer.synchronize()
        assert not any(map(torch.equal, model.parameters(), before))
    else:
        for name, parameter in list(model.named_parameters())[2:]:
            hvd.allreduce(torch.ones_like(parameter), name=f"delta.{name}", op=hvd.Adasum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    step(model, optimizer, inputs)
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1


def not_all_deltas_can_be_combined():
    """The ranks' last parameters differ: no parameter is changed, on either rank."""
    parameters = [torch.zeros(2, requires_grad=True), torch.zeros(2 + hvd.rank(), requires_grad=True)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), op=hvd.Adasum)
    sum(parameter.sum() for parameter in parameters).backward()
    with pytest.raises(hvd.MismatchError, match=r"delta\.parameter\.1"):
        optimizer.step()
    assert not any(parameter.any() for parameter in parameters)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_steps_are_combined_as_in_the_paper(ranks):
    world(ranks).run(everywhere)


def test_steps_are_combined_in_a_process_set():
    world(3).run(in_a_set)


def test_it_goes_with_what_else_an_optimizer_does():
    world(2).run(with_what_else_there_is)


def test_misuse_is_told_and_the_job_goes_on():
    world(2).run(misuse)


def test_control_c_leaves_all_parameters_as_before_the_step():
    world(2).run(interrupted)


def test_a_step_is_taken_as_a_whole_or_not_at_all():
    world(2).run(not_all_deltas_can_be_combined)
