"""Gradients of all operations in all forms, against what NumPy computes from everybody's inputs and weights.

Rank r's loss is the sum of its results, each times a weight W[r]. With all W known, the gradient of each rank's input
is a formula of NumPy; the conventions are Horovod's (averages for allgather and broadcast, see the guide).
"""

import farandole_torch as hvd
import numpy as np
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
RANKS = (1, 2, 3)
MEMBERS = {1: [0], 2: [1, 0], 3: [0, 2]}  # of the process set


def numbers(rank, salt, *shape):
    return np.random.default_rng([rank, salt, *shape]).standard_normal(shape)


class Job:
    """One operation among the ranks of a set, in one of its forms."""

    def __init__(self, form, ranks, process_set):
        self.grouped, self.waits = form.startswith("grouped_"), form.endswith("_async")
        self.ranks, self.process_set, self.size = ranks, process_set, len(ranks)
        self.place = ranks.index(hvd.rank())
        self.form = form

    def inputs(self, shape_of):
        """Everybody's inputs, by place in the set and then by tensor, and mine as leaves that are not contiguous."""
        count = 2 if self.grouped else 1
        shapes = [[shape_of(place, tensor) for tensor in range(count)] for place in range(self.size)]
        everybody = [
            [numbers(rank, tensor, *shape) for tensor, shape in enumerate(of_rank)]
            for rank, of_rank in zip(self.ranks, shapes, strict=True)
        ]
        strided = [torch.from_numpy(np.repeat(each, 2, axis=-1))[..., ::2] for each in everybody[self.place]]
        return everybody, [each.requires_grad_() for each in strided]

    def call(self, leaves, **options):
        given = leaves if self.grouped else leaves[0]
        results = getattr(hvd, self.form)(given, **options, process_set=self.process_set, name="job")
        if self.waits:
            with torch.no_grad():  # where the result is taken does not matter
                results = hvd.synchronize(results)
        return results if self.grouped else [results]

    def backward(self, leaves, results):
        weights = [torch.from_numpy(each) for each in self.weights(results, self.ranks[self.place])]
        sum((result * weight).sum() for result, weight in zip(results, weights, strict=True)).backward()
        return [leaf.grad.numpy() for leaf in leaves]

    def weights(self, results, rank):
        return [numbers(rank, 10 + tensor, *result.shape) for tensor, result in enumerate(results)]

    def weights_of_all(self, shape_of):
        """By place, then tensor; `shape_of` gives the shape of a result of a place."""
        count = 2 if self.grouped else 1
        return [[numbers(rank, 10 + t, *shape_of(place, t)) for t in range(count)] for place, rank in
                enumerate(self.ranks)]  # fmt: skip


def agree(job, results, expected, gradients, expected_gradients):
    for got, want in zip(results, expected, strict=True):
        assert got.requires_grad and np.allclose(got.detach().numpy(), want, rtol=1e-12, atol=1e-12), job.form
    for got, want in zip(gradients, expected_gradients, strict=True):
        assert np.allclose(got, want, rtol=1e-12, atol=1e-12), (job.form, got, want)


def allreduce(job):
    for op in (hvd.Sum, hvd.Average):
        everybody, leaves = job.inputs(lambda place, tensor: (2, 3 + tensor))
        results = job.call(leaves, op=op, prescale_factor=0.5, postscale_factor=3.0)
        factor = 1.5 / (job.size if op == hvd.Average else 1)
        weights = job.weights_of_all(lambda place, tensor: (2, 3 + tensor))
        sums = [factor * sum(each) for each in zip(*everybody, strict=True)]
        agree(job, results, sums, job.backward(leaves, results), [factor * sum(w) for w in zip(*weights, strict=True)])


def allgather(job):
    everybody, leaves = job.inputs(lambda place, tensor: (place + tensor, 2))
    results = job.call(leaves)
    joined = [np.concatenate(each) for each in zip(*everybody, strict=True)]
    weights = job.weights_of_all(lambda place, tensor: joined[tensor].shape)
    averages = [sum(each) / job.size for each in zip(*weights, strict=True)]
    starts = [sum(p + tensor for p in range(job.place)) for tensor in range(len(leaves))]
    mine = [each[s : s + job.place + t] for t, (each, s) in enumerate(zip(averages, starts, strict=True))]
    agree(job, results, joined, job.backward(leaves, results), mine)


def broadcast(job):
    everybody, leaves = job.inputs(lambda place, tensor: (3, 2))
    root = job.size - 1
    results = job.call(leaves, root_rank=job.ranks[root])
    average = sum(each[0] for each in job.weights_of_all(lambda place, tensor: (3, 2))) / job.size
    gradients = job.backward(leaves, results)
    agree(job, results, everybody[root], gradients, [average if job.place == root else 0 * average])


def alltoall_of_splits(job):
    """Place p sends p + q rows to place q."""
    rows = lambda p: sum(p + q for q in range(job.size))  # noqa: E731
    everybody, leaves = job.inputs(lambda place, tensor: (rows(place), 2))
    splits = [job.place + q for q in range(job.size)]
    ((result, received),) = job.call(leaves, splits=splits)
    assert received.tolist() == splits  # p + q rows go both ways
    cut = lambda array, p: np.split(array, np.cumsum([p + q for q in range(job.size)])[:-1])  # noqa: E731
    came = np.concatenate([cut(everybody[p][0], p)[job.place] for p in range(job.size)])
    weights = job.weights_of_all(lambda place, tensor: (rows(place), 2))
    back = np.concatenate([cut(weights[q][0], q)[job.place] for q in range(job.size)])
    agree(job, [result], [came], job.backward(leaves, [result]), [back])


def alltoall_of_equal_parts(job):
    """Place p sends p + 1 rows to everybody."""
    everybody, leaves = job.inputs(lambda place, tensor: ((place + 1) * job.size, 2))
    results = job.call(leaves)
    came = np.concatenate([np.split(each[0], job.size)[job.place] for each in everybody])
    weights = job.weights_of_all(lambda place, tensor: came.shape)
    starts = np.cumsum([p + 1 for p in range(job.size)])[:-1]
    back = np.concatenate([np.split(each[0], starts)[job.place] for each in weights])
    agree(job, results, [came], job.backward(leaves, results), [back])


def reducescatter(job):
    parts = lambda array: np.array_split(array, job.size)  # noqa: E731  # the first ones get a row more
    for op in (hvd.Sum, hvd.Average):
        everybody, leaves = job.inputs(lambda place, tensor: (job.size + 1 + tensor, 2))
        results = job.call(leaves, op=op, prescale_factor=0.5, postscale_factor=3.0)
        factor = 1.5 / (job.size if op == hvd.Average else 1)
        sums = [parts(factor * sum(each))[job.place] for each in zip(*everybody, strict=True)]
        shapes = [[part.shape for part in parts(each)] for each in everybody[0]]  # [tensor][place]
        weights = job.weights_of_all(lambda p, t, shapes=shapes: shapes[t][p])
        times = 1.5 * (job.size if op == hvd.Sum else 1)
        back = [times * np.concatenate(each) for each in zip(*weights, strict=True)]
        agree(job, results, sums, job.backward(leaves, results), back)


FORMS = {
    allreduce: ["allreduce", "allreduce_async", "grouped_allreduce", "grouped_allreduce_async"],
    allgather: ["allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async"],
    broadcast: ["broadcast", "broadcast_async"],
    alltoall_of_splits: ["alltoall", "alltoall_async"],
    alltoall_of_equal_parts: ["alltoall", "alltoall_async"],
    reducescatter: [
        "reducescatter",
        "reducescatter_async",
        "grouped_reducescatter",
        "grouped_reducescatter_async",
    ],
}


def every_form(case, forms):
    everybody = list(range(hvd.size()))
    members = sorted(MEMBERS[hvd.size()])
    for form in forms:
        case(Job(form, everybody, None))
    few = hvd.global_process_set if members == everybody else hvd.add_process_set(members)
    if hvd.rank() in members:
        for form in forms:
            case(Job(form, members, few))
    hvd.remove_process_set(few)


@pytest.mark.parametrize(("ranks", "case"), [(n, case) for n in RANKS for case in FORMS])
def test_gradients(ranks, case):
    world(ranks).run(every_form, case, FORMS[case])


def second_derivatives():
    """Of x cubed behind each operation, by its gradient again."""
    x = torch.full((hvd.size(), 2), 3.0, dtype=torch.float64, requires_grad=True)
    for operation in (hvd.alltoall, hvd.reducescatter, hvd.allgather, hvd.allreduce):
        (first,) = torch.autograd.grad(operation(x**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert torch.allclose(first, torch.full_like(x, 27.0)) or operation is hvd.allgather
        assert torch.allclose(second, 6 * 3.0 / 27.0 * first)


def compressed():
    x = torch.ones(hvd.size(), 2, requires_grad=True)
    y = hvd.reducescatter(x, op=hvd.Sum, compression=hvd.Compression.fp16)
    (z,) = hvd.grouped_reducescatter([x], op=hvd.Average, compression=hvd.Compression.bf16)
    (y.sum() + z.sum()).backward()
    assert (y.dtype, z.dtype, x.grad.dtype) == (torch.float32,) * 3
    assert torch.equal(x.grad, torch.full_like(x, hvd.size() + 1.0))


def misuse_is_told_alike_with_and_without_a_gradient():
    x = torch.ones(hvd.size() + 1, requires_grad=True)
    for tensor in (x, x.detach()):
        if hvd.size() > 1:
            with pytest.raises(ValueError, match="multiple"):
                hvd.alltoall(tensor)
        with pytest.raises(ValueError, match="splits"):
            hvd.alltoall(tensor, splits=[1] * (hvd.size() + 1))
        with pytest.raises(ValueError, match="no ProcessSet"):
            hvd.alltoall(tensor, process_set=[0])
        with pytest.raises(ValueError, match="Adasum"):
            hvd.reducescatter(tensor, op=hvd.Adasum)
        with pytest.raises(TypeError, match="compressor"):
            hvd.reducescatter(tensor, compression="fp16")
        with pytest.raises(TypeError, match="list or tuple"):
            hvd.grouped_allgather(tensor)
        with pytest.raises(ValueError, match="at least one"):
            hvd.grouped_reducescatter([])
    with pytest.raises(ValueError, match=r"0-d|scalar|dimension"):
        hvd.alltoall(torch.tensor(1.0, requires_grad=True))


def unused_results_count_as_zeros():
    x, y = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    a, _ = hvd.grouped_allreduce([x, y], op=hvd.Sum)
    a.sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([hvd.size()] * 2, [0.0, 0.0])


def views_of_opposite_numbers():
    """The imaginary part of a conjugate says by a flag that its memory holds the opposite numbers."""
    x = torch.tensor([1 + 2j], dtype=torch.complex128).conj().imag
    assert x.is_neg() and x.is_contiguous() and x.tolist() == [-2.0]
    assert hvd.allreduce(x, op=hvd.Sum).tolist() == [-2.0 * hvd.size()]
    assert hvd.broadcast_(x, 0).tolist() == [-2.0] == x.tolist()
    hvd.allreduce_(x.requires_grad_(), op=hvd.Sum)
    assert x.tolist() == [-2.0 * hvd.size()]


def gradients_beside_a_rank_that_has_joined():
    """Rank 0 gives nothing, and what went to it has no gradient."""
    size = hvd.size()
    if hvd.rank() > 0:
        others = size - 1
        x = torch.ones(hvd.rank(), dtype=torch.float64, requires_grad=True)
        weights = torch.arange(float(sum(range(size))), dtype=torch.float64)
        (hvd.allgather(x) * weights).sum().backward()
        start = sum(range(hvd.rank()))
        assert torch.allclose(x.grad, weights[start : start + hvd.rank()] * others / size)
        for splits in (None, [1] * size, torch.ones(size, dtype=torch.int32)):
            x = torch.ones(size, 2, dtype=torch.float64, requires_grad=True)
            result = hvd.alltoall(x, splits, name="rows")
            result = result if splits is None else result[0]
            (result * (hvd.rank() + 1)).sum().backward()
            assert x.grad[:, 1].tolist() == [0.0, *range(2, size + 1)]
        x, y = (torch.ones(rows, dtype=torch.float64, requires_grad=True) for rows in (size + 1, 1))
        results = hvd.grouped_reducescatter([x, y], op=hvd.Sum, name="parts")
        sum((each * (hvd.rank() + 1)).sum() for each in results).backward()
        want = [0.0, 0.0, *range(2, size + 1)] if size > 1 else []
        assert x.grad.tolist() == [size * each for each in want] and y.grad.tolist() == [0.0]
    hvd.join()


CASES = (
    views_of_opposite_numbers,
    gradients_beside_a_rank_that_has_joined,
    second_derivatives,
    compressed,
    misuse_is_told_alike_with_and_without_a_gradient,
    unused_results_count_as_zeros,
)


@pytest.mark.parametrize(("ranks", "case"), [(n, case) for n in RANKS for case in CASES])
def test_more_gradients(ranks, case):
    world(ranks).run(case)
