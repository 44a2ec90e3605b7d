"""Which tensors the core reads by itself, and which it leaves to the plugin; the results are right either way."""

import farandole_torch as hvd
import pytest
import torch
from farandole.plugin import Kind
from farandole.testing import world
from farandole_torch._adapter import TORCH_DTYPES, TensorAdapter

PARAMETERS = ("", 0, 0, 1.0, 1.0, 0)  # a sum without a name

pytestmark = pytest.mark.skipif(TensorAdapter.array_type is None, reason="torch before 2.10 does not show its memory")


def usable():
    """Contiguous memory of the host that holds the values."""
    plain = torch.arange(6.0).reshape(2, 3)
    yield from (torch.tensor([[1, 0, 1]]).to(dtype) for dtype in TORCH_DTYPES.values())
    yield from (plain, plain[1], plain[:, :1][:1], torch.tensor(3.0), torch.ones(1, 2, 1).transpose(0, 2))
    yield from (plain.clone().requires_grad_(), torch.ones((1,) * 20), torch.ones(8).as_strided((1, 4), (7, 1)))


def unusable():
    plain = torch.arange(6.0).reshape(2, 3)
    yield from (plain.t(), plain[:, :2], torch.ones(3).expand(2, 3), torch.ones(0, 3))
    yield torch.ones(2, dtype=torch.float8_e4m3fn)
    yield torch.ones(2, dtype=torch.complex32)
    yield torch.ones(2, dtype=torch.complex64).conj()
    yield from (torch.ones(2, device="meta"), torch.ones(2).to_sparse(), torch._efficientzerotensor(3))


def look():
    from farandole._runtime.native import core

    def is_taken(tensor):
        return core.run_one(Kind.ALLREDUCE, tensor, tensor, None, PARAMETERS)

    assert all(map(is_taken, usable()))
    assert not any(map(is_taken, unusable()))
    one, other = torch.ones(2, 3), torch.zeros(2, 3)
    assert core.run_one(Kind.ALLREDUCE, one, other, None, PARAMETERS)
    assert other.equal(one)
    for target in (torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.int32), torch.nn.Parameter(other)):
        assert core.submit_one(Kind.ALLREDUCE, one, target, None, PARAMETERS) is None


def test_the_core_reads_contiguous_memory_of_the_host():
    world(1).run(look)


def views():
    """Of a negative view the memory holds the opposite numbers; some are contiguous."""
    rank, factor = hvd.rank(), float(hvd.size())
    complex_values = torch.tensor([complex(rank, -3.0)])
    for view in (torch._neg_view(torch.full((2, 2), -3.0)), complex_values.conj().imag.view(1, 1)):
        assert view.is_neg() and view.is_contiguous()
        assert hvd.allreduce(view, op=hvd.Sum).flatten().tolist() == [3.0 * factor] * view.numel()
        hvd.allreduce_(view, op=hvd.Sum)
        assert view.flatten().tolist() == [3.0 * factor] * view.numel()
    assert complex_values.tolist() == [complex(rank, -3.0 * factor)]


def conjugates():
    """Of the view of a conjugate the memory holds what is not conjugated yet."""
    rank, ranks = hvd.rank(), hvd.size()
    values = torch.tensor([complex(rank, rank + 1)] * 3)
    total = complex(sum(range(ranks)), -sum(range(1, ranks + 1)))
    view = values.conj()
    assert view.is_conj() and view.is_contiguous()
    for _ in range(2):
        assert hvd.allreduce(view, op=hvd.Sum, name="conjugate").tolist() == [total] * 3
    assert hvd.allgather(view[:1]).tolist() == [complex(each, -each - 1) for each in range(ranks)]
    hvd.allreduce_(view, op=hvd.Sum)
    assert view.tolist() == [total] * 3
    assert values.tolist() == [total.conjugate()] * 3


def test_views_whose_memory_holds_other_numbers():
    two = world(2)
    two.run(views)
    two.run(conjugates)
