"""Sparse COO tensors: gathered, so that their sum is the sum of all."""

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)


def of_rank(rank):
    """A sparse matrix with `rank` elements, of which rank 0 has none."""
    rows = torch.arange(rank)
    return torch.sparse_coo_tensor(torch.stack([rows % 2, rows]), torch.full((rank,), 6.0 * (rank + 1)), (2, 4))


def sums_and_averages():
    total = sum(of_rank(rank).to_dense() for rank in range(hvd.size()))
    mine = of_rank(hvd.rank())
    for op, expected in ((hvd.Sum, total), (hvd.Average, total / hvd.size())):
        finish = hvd.sparse_allreduce_async(mine, "sparse", op)
        assert finish().layout is torch.sparse_coo
        assert torch.allclose(finish().to_dense(), expected)
    assert torch.equal(mine.to_dense(), of_rank(hvd.rank()).to_dense())


def gradient_of_an_embedding():
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    embedding(torch.tensor([hvd.rank(), 4])).sum().backward()
    reduced = hvd.sparse_allreduce_async(embedding.weight.grad, name="embedding", op=hvd.Sum)().to_dense()
    expected = torch.zeros(5, 3)
    for rank in range(hvd.size()):
        expected[rank] += 1
        expected[4] += 1
    assert torch.equal(reduced, expected)


def misuse_is_refused():
    with pytest.raises(ValueError, match="sparse_coo"):
        hvd.sparse_allreduce_async(torch.ones(2))
    with pytest.raises(ValueError, match="Sum or Average"):
        hvd.sparse_allreduce_async(of_rank(1), op=hvd.Max)


CASES = (sums_and_averages, gradient_of_an_embedding, misuse_is_refused)


@pytest.mark.parametrize(("ranks", "case"), [(n, case) for n in (1, 2, 4) for case in CASES])
def test_sparse(ranks, case):
    world(ranks).run(case)
