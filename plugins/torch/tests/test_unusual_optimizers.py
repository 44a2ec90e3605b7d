"""Optimizers and parameters that are not as most are."""

import collections
import warnings

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from training import goes_on, loss_of, network

pytestmark = pytest.mark.timeout(180)


class Lookahead(torch.optim.Optimizer):
    """As many copies of it are: they do not call torch's __init__."""

    def __init__(self, optimizer, k=2, alpha=0.5):
        self.optimizer, self.k, self.alpha = optimizer, k, alpha
        self.param_groups = optimizer.param_groups
        self.state = collections.defaultdict(dict)
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        self.steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                slow = self.state[parameter].setdefault("slow", parameter.clone())
                if self.steps % self.k == 0:
                    parameter.copy_(slow.add_(parameter - slow, alpha=self.alpha))
        return loss


class Delegating(Lookahead):
    """Has the groups of the other one as a property."""

    param_groups = property(
        lambda self: self.optimizer.param_groups, lambda self, groups: setattr(self.optimizer, "param_groups", groups)
    )


def without_the_init_of_torch():
    for kind in (Lookahead, Delegating):
        for op in (hvd.Average, hvd.Adasum):
            model = network()
            inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            optimizer = hvd.DistributedOptimizer(kind(inner), model.named_parameters(), op=op)
            for _ in range(3):
                if op == hvd.Average:
                    goes_on(model, optimizer)
                else:
                    loss_of(model).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1
            assert optimizer.steps == 3 and optimizer.param_groups is inner.param_groups
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            plain = kind(torch.optim.SGD(model.parameters(), lr=0.1))
            loss_of(model).backward()
            plain.step()  # its class is as it was


def gradients_of_another_dtype():
    """No rank but one has a gradient."""
    parameter = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    parameter.grad_dtype = torch.float32
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0, foreach=False))
    for _ in range(2):
        optimizer.zero_grad()
        if hvd.rank() == 0:
            (parameter.float() * 0.25).sum().backward()
        optimizer.synchronize()
        assert parameter.grad.dtype == torch.float32 and parameter.grad.tolist() == [0.125] * 2


def sparse_gradients():
    """Nothing warns, whatever their way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for as_dense in (False, True):
            embedding = torch.nn.Embedding(4, 2, sparse=True)
            hvd.broadcast_parameters(embedding.state_dict(), root_rank=0)
            inner = torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.5)
            optimizer = hvd.DistributedOptimizer(inner, embedding.named_parameters(), sparse_as_dense=as_dense)
            for step in range(2):
                if step == 0 or hvd.rank() == 0:
                    embedding(torch.tensor([hvd.rank(), 3])).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            state = hvd.elastic.TorchState(embedding, optimizer)
            state.save()
            state.restore()
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        result = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), op=hvd.Sum)()
        assert result.to_dense().tolist() == (torch.eye(2) * hvd.size()).tolist()


@pytest.mark.parametrize("case", [without_the_init_of_torch, gradients_of_another_dtype, sparse_gradients])
def test_it_is_reduced_as_others_are(case):
    if case is gradients_of_another_dtype and not hasattr(torch.Tensor, "grad_dtype"):
        pytest.skip("this PyTorch has no grad_dtype")
    world(2).run(case)
