"""Gradients of the collectives, as in Horovod: allreduce's are reduced alike, allgather's and broadcast's averaged."""

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
RANKS = (1, 2, 3)


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def weighted(tensor):
    """A scalar whose gradient is rank + 1 everywhere."""
    return tensor.sum() * (hvd.rank() + 1)


def gradient_of_allreduce():
    total = sum(rank + 1 for rank in range(hvd.size()))
    for op, expected in ((hvd.Sum, total), (hvd.Average, total / hvd.size())):
        x = leaf(1.0, 2.0)
        weighted(hvd.allreduce(x, op=op, name="x")).backward()
        assert torch.allclose(x.grad, torch.full_like(x, expected))
    x = leaf(1.0, 2.0)
    weighted(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)).backward()
    assert torch.allclose(x.grad, torch.full_like(x, total * 1.5))


def gradient_of_complex_allreduce():
    """As of real tensors: the ranks' gradients, reduced alike."""
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        x = torch.tensor([1 + 2j, -3j], dtype=torch.complex128, requires_grad=True)
        weights = torch.tensor([hvd.rank() + 1j, 2 - 1j * hvd.rank()], dtype=torch.complex128)
        (hvd.allreduce(x, op=op) * weights).real.sum().backward()
        total = sum(range(hvd.size()))
        expected = torch.tensor([total - hvd.size() * 1j, 2 * hvd.size() + total * 1j], dtype=torch.complex128)
        assert torch.allclose(x.grad, expected / divisor)


def gradient_of_compressed_allreduce():
    x = torch.ones(3, requires_grad=True)
    weighted(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16)).backward()
    assert x.grad.dtype == torch.float32
    assert x.grad.tolist() == [sum(rank + 1 for rank in range(hvd.size()))] * 3


def gradient_of_grouped_allreduce():
    x, y = leaf(1.0), leaf(1.0, 2.0)
    a, b = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    (weighted(a) + 2 * weighted(b)).backward()
    total = sum(rank + 1 for rank in range(hvd.size()))
    assert (x.grad.tolist(), y.grad.tolist()) == ([total], [2 * total] * 2)


def gradient_of_allgather():
    rows = hvd.rank() + 1
    x = torch.ones(rows, 2, dtype=torch.float64, requires_grad=True)
    gathered = hvd.allgather(x, name="rows")
    weights = torch.arange(gathered.numel(), dtype=torch.float64).reshape(gathered.shape)
    (gathered * weights * (hvd.rank() + 1)).sum().backward()
    start = sum(rank + 1 for rank in range(hvd.rank()))
    average = sum(rank + 1 for rank in range(hvd.size())) / hvd.size()
    assert torch.allclose(x.grad, average * weights[start : start + rows])


def gradient_of_grouped_allgather():
    x, y = leaf(*[1.0] * (hvd.rank() + 1)), leaf(2.0)
    a, b = hvd.grouped_allgather([x, y])
    (weighted(a) + 3 * weighted(b)).backward()
    average = sum(rank + 1 for rank in range(hvd.size())) / hvd.size()
    assert torch.allclose(x.grad, torch.full_like(x, average))
    assert torch.allclose(y.grad, torch.full_like(y, 3 * average))


def gradient_of_broadcast():
    root = hvd.size() - 1
    x = leaf(1.0, 2.0)
    weighted(hvd.broadcast(x, root)).backward()
    average = sum(rank + 1 for rank in range(hvd.size())) / hvd.size()
    assert torch.allclose(x.grad, torch.full_like(x, average if hvd.rank() == root else 0.0))


def gradients_in_a_process_set():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([1, 2])
    if pair.included():
        x = leaf(1.0, 2.0)
        weighted(hvd.allreduce(x, op=hvd.Average, process_set=pair)).backward()
        assert torch.allclose(x.grad, torch.full_like(x, (2 + 3) / 2))
        x = torch.ones(hvd.rank(), 2, dtype=torch.float64, requires_grad=True)
        gathered = hvd.allgather(x, process_set=pair)
        weights = torch.arange(6, dtype=torch.float64).reshape(3, 2)
        (gathered * weights * (hvd.rank() + 1)).sum().backward()
        assert torch.allclose(x.grad, (2 + 3) / 2 * (weights[:1] if hvd.rank() == 1 else weights[1:]))
        x = leaf(1.0)
        weighted(hvd.broadcast(x, 2, process_set=pair)).backward()
        assert x.grad.item() == ((2 + 3) / 2 if hvd.rank() == 2 else 0.0)
    assert hvd.remove_process_set(pair)


def second_derivative_of_allreduce():
    x = leaf(3.0)
    (first,) = torch.autograd.grad(hvd.allreduce(x * x, op=hvd.Sum).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.item() == 2 * hvd.size()


def nothing_is_recorded_without_need():
    assert not hvd.allreduce(torch.ones(2)).requires_grad
    with torch.no_grad():
        assert not hvd.allreduce(leaf(1.0)).requires_grad
        assert not hvd.broadcast(leaf(1.0), 0).requires_grad
        assert not hvd.allgather(leaf(1.0)).requires_grad
        assert not hvd.synchronize(hvd.allreduce_async(leaf(1.0))).requires_grad


def only_sparse_tensors_have_no_gradient():
    sparse = leaf(1.0, 0.0).to_sparse()
    with pytest.raises(ValueError, match=r"sparse_allreduce_async has no gradient.*tensor\.detach\(\)"):
        hvd.sparse_allreduce_async(sparse)
    with torch.no_grad():
        assert hvd.sparse_allreduce_async(sparse, op=hvd.Sum)().to_dense().tolist() == [hvd.size(), 0.0]
    hvd.broadcast_(leaf(1.0), 0)  # the data alone, as for parameters


def only_linear_reductions_have_a_gradient():
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        result = hvd.allreduce(leaf(1.0, 1.0), op=op)
        assert result.tolist() == [1.0, 1.0]
        with pytest.raises(ValueError, match=f"allreduce with op={op.name.capitalize()} has no gradient"):
            result.sum().backward()
    result = hvd.reducescatter(leaf(*[1.0] * hvd.size()), op=hvd.Max)
    with pytest.raises(ValueError, match="reducescatter with op=Max has no gradient"):
        result.sum().backward()


CASES = (
    gradient_of_allreduce,
    gradient_of_complex_allreduce,
    gradient_of_compressed_allreduce,
    gradient_of_grouped_allreduce,
    gradient_of_allgather,
    gradient_of_grouped_allgather,
    gradient_of_broadcast,
    gradients_in_a_process_set,
    second_derivative_of_allreduce,
    nothing_is_recorded_without_need,
    only_linear_reductions_have_a_gradient,
    only_sparse_tensors_have_no_gradient,
)


@pytest.mark.parametrize(("ranks", "case"), [(n, case) for n in RANKS for case in CASES])
def test_autograd(ranks, case):
    world(ranks).run(case)


def second_derivatives():
    """All ranks take part in the root's."""
    x = leaf(hvd.rank() + 1.0, 2.0)
    (slope,) = torch.autograd.grad((hvd.broadcast(x, 0) ** 3).sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), x)
    is_root = hvd.rank() == 0
    assert slope.tolist() == ([3.0, 12.0] if is_root else [0.0] * 2)
    # The slope is an average over the ranks, of which only the root's was asked for here.
    assert curvature.tolist() == ([6.0 / hvd.size(), 12.0 / hvd.size()] if is_root else [0.0] * 2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_broadcast_can_be_differentiated_twice(ranks):
    world(ranks).run(second_derivatives)
