"""A small model in training, for tests that disturb it."""

import copy

import farandole_torch as hvd
import torch


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()


def wrapped(model, **options):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options)


def loss_of(model):
    return model(torch.sin(torch.arange(12.0).reshape(3, 4) * (hvd.rank() + 1)).double()).square().mean()


def goes_on(model, optimizer):
    """A step gives every rank the average of the gradients, and nothing is left of what went wrong."""
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer.zero_grad()
    loss_of(model).backward()
    own = copy.deepcopy(model)
    own.zero_grad()
    loss_of(own).backward()
    optimizer.synchronize()
    for parameter, alone in zip(model.parameters(), own.parameters(), strict=True):
        if parameter.requires_grad:
            assert torch.allclose(parameter.grad, hvd.allreduce(alone.grad))
    optimizer.step()
    optimizer.zero_grad()
