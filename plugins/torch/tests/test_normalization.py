"""SyncBatchNorm: the batches of all ranks are one, as torch.nn.BatchNorm sees it on one rank that has it all."""

import copy
import pickle

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)
PLAIN = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}
CHANNELS = 3


def batch_of(rank, step, shape, dtype):
    """Rank r has r + 2 rows, unless `shape` says otherwise; the channels lie at 100, 200, ..."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    rows = rank + 2 if shape[0] is None else shape[0]
    values = torch.randn(rows, *shape[1:], generator=generator, dtype=torch.float64)
    places = 100.0 * torch.arange(1, CHANNELS + 1, dtype=torch.float64)
    return (values * (rank + 1) + places.reshape(-1, *[1] * (len(shape) - 2))).to(dtype)


def weights_of(rank, step, like):
    generator = torch.Generator().manual_seed(77 * step + rank)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype)


def compare(shape, dtype, tolerance, steps=3, evaluates=True, ranks=None, process_set=None, **options):
    """Outputs, all gradients and running statistics of a few steps beside those of one rank with all rows."""
    ranks = list(range(hvd.size())) if ranks is None else ranks
    ours = hvd.SyncBatchNorm(CHANNELS, process_set=process_set, **options).to(dtype)
    whole = PLAIN[len(shape)](CHANNELS, **options).double()
    if ours.affine:
        for module in (ours, whole):
            torch.nn.init.constant_(module.weight, 1.5)
            torch.nn.init.constant_(module.bias, -0.25)
    close = lambda a, b: torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance)  # noqa: E731
    for step in range(steps):
        inputs = [batch_of(rank, step, shape, dtype) for rank in ranks]
        weights = [weights_of(rank, step, each) for rank, each in zip(ranks, inputs, strict=True)]
        place = ranks.index(hvd.rank())
        mine = inputs[place].clone().requires_grad_()
        everything = torch.cat(inputs).double().requires_grad_()
        ours.zero_grad()
        output, expected = ours(mine), whole(everything)
        (output * weights[place]).sum().backward()
        (expected * torch.cat(weights).double()).sum().backward()
        rows = slice(sum(map(len, inputs[:place])), sum(map(len, inputs[: place + 1])))
        assert output.dtype == dtype and close(output, expected[rows])
        assert close(mine.grad, everything.grad[rows])
        check_parameters(ours, weights[place], expected[rows], close)
        if ours.running_mean is not None:
            assert close(ours.running_mean, whole.running_mean) and close(ours.running_var, whole.running_var)
            assert ours.num_batches_tracked == whole.num_batches_tracked == step + 1
    if evaluates and ours.running_mean is not None:
        ours.eval(), whole.eval()
        inputs = batch_of(hvd.rank(), 9, shape, dtype)
        assert close(ours(inputs), whole(inputs.double()))


def check_parameters(ours, weights, output, close):
    """The weight's and bias's gradients are those of this rank's rows alone, for an optimizer to average."""
    if ours.affine:
        over = [axis for axis in range(output.dim()) if axis != 1]
        normalized = (output + 0.25) / 1.5
        assert close(ours.bias.grad, weights.double().sum(over))
        assert close(ours.weight.grad, (weights.double() * normalized).sum(over))


def in_every_shape():
    for shape in ((None, CHANNELS), (None, CHANNELS, 4), (None, CHANNELS, 2, 3), (2, CHANNELS, 2, 2, 2)):
        compare(shape, torch.float64, 1e-9)
    compare((None, CHANNELS, 5), torch.float32, 2e-3)  # the mean alone is 300, and 1e-7 of it is lost in float32


def with_every_option():
    shape = (None, CHANNELS, 2, 2)
    compare(shape, torch.float64, 1e-9, momentum=None)
    compare(shape, torch.float64, 1e-9, momentum=0.7, eps=0.1)
    compare(shape, torch.float64, 1e-9, affine=False)
    compare(shape, torch.float64, 1e-9, track_running_stats=False)


def half_precision():
    for dtype, tolerance in ((torch.float16, 0.05), (torch.bfloat16, 0.1)):
        norm = hvd.SyncBatchNorm(CHANNELS)  # float32 parameters, as under autocast
        inputs = batch_of(hvd.rank(), 0, (8, CHANNELS, 50), dtype).requires_grad_()
        everything = torch.cat([batch_of(rank, 0, (8, CHANNELS, 50), dtype) for rank in range(hvd.size())]).double()
        output = norm(inputs)
        rows = slice(8 * hvd.rank(), 8 * hvd.rank() + 8)
        expected = torch.nn.BatchNorm1d(CHANNELS).double()(everything)[rows]
        assert output.dtype == dtype and torch.allclose(output.double(), expected, atol=tolerance, rtol=tolerance)
        output.float().square().sum().backward()
        assert inputs.grad.dtype == dtype and norm.weight.grad.dtype == torch.float32


def memory_formats():
    inputs = batch_of(hvd.rank(), 0, (None, CHANNELS, 4, 5), torch.float64)
    norm = hvd.SyncBatchNorm(CHANNELS).double()
    results = []
    for given in (inputs, inputs.contiguous(memory_format=torch.channels_last), inputs.transpose(2, 3).contiguous()):
        if given.shape != inputs.shape:
            given = given.transpose(2, 3)  # strided
        given = given.detach().requires_grad_()
        output = norm(given)
        output.pow(3).sum().backward()
        results.append((output, given.grad))
        if given.is_contiguous(memory_format=torch.channels_last):
            assert output.is_contiguous(memory_format=torch.channels_last)
    for output, gradient in results[1:]:
        assert torch.allclose(output, results[0][0]) and torch.allclose(gradient, results[0][1])


def an_empty_batch():
    """Rank 0 has no rows, and still takes part."""
    rows = [0, 4, 3][: hvd.size()]
    inputs = [torch.randn(n, CHANNELS, generator=torch.Generator().manual_seed(n)).double() for n in rows]
    mine = inputs[hvd.rank()].clone().requires_grad_()
    norm = hvd.SyncBatchNorm(CHANNELS).double()
    output = norm(mine)
    output.square().sum().backward()
    expected = torch.nn.BatchNorm1d(CHANNELS).double()(torch.cat(inputs))
    start = sum(rows[: hvd.rank()])
    assert torch.allclose(output, expected[start : start + rows[hvd.rank()]])
    assert mine.grad.shape == mine.shape


def in_a_process_set():
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        compare((None, CHANNELS, 2), torch.float64, 1e-9, ranks=pair.ranks, process_set=pair)
    else:
        compare((None, CHANNELS, 2), torch.float64, 1e-12, ranks=[hvd.rank()], process_set=pair)
    hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="add_process_set"):
        hvd.SyncBatchNorm(CHANNELS, process_set=pair)(torch.ones(2, CHANNELS))


def evaluation_asks_nobody():
    norm = hvd.SyncBatchNorm(CHANNELS).eval()
    if hvd.rank() == 0:
        assert norm(torch.ones(1, CHANNELS)).shape == (1, CHANNELS)
    for other in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert other.state_dict().keys() == torch.nn.BatchNorm1d(CHANNELS).state_dict().keys()
    assert isinstance(norm, torch.nn.modules.batchnorm._BatchNorm)


def inputs_without_gradient_and_double_backward():
    norm = hvd.SyncBatchNorm(CHANNELS)
    norm(torch.randn(4, CHANNELS)).sum().backward()
    assert norm.bias.grad.tolist() == [4.0] * CHANNELS
    inputs = torch.randn(4, CHANNELS, requires_grad=True)
    (first,) = torch.autograd.grad(norm(inputs).square().sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def misuse():
    norm = hvd.SyncBatchNorm(CHANNELS)
    for wrong, word in (((5,), r"\(batch, channels, \.\.\.\), not \(5,\)"), ((2, 7), "3 channels.* has 7")):
        with pytest.raises(ValueError, match=word):
            norm(torch.ones(wrong))
    with pytest.raises(ValueError, match=r"takes floats, not torch\.int64"):
        norm(torch.ones(2, CHANNELS, dtype=torch.int64))
    with pytest.raises(ValueError, match="more than one value for each channel on all ranks"):
        norm(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))
    with pytest.raises(hvd.MismatchError, match=rf"SyncBatchNorm\.mean.*rank {hvd.size() - 1}"):
        width = CHANNELS + (hvd.rank() == hvd.size() - 1)
        hvd.SyncBatchNorm(width)(torch.ones(2, width))
    assert norm(torch.ones(2, CHANNELS)).abs().max() < 1e-3


def train_like_one_rank():
    """A network with it, in DistributedOptimizer, takes the same steps as one rank with all rows."""

    def network(norm):
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(4, CHANNELS), norm, torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()

    ours, whole = network(hvd.SyncBatchNorm(CHANNELS)), network(torch.nn.BatchNorm1d(CHANNELS))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(ours.parameters(), lr=0.1), ours.named_parameters())
    plain = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step in range(5):
        inputs = torch.randn(hvd.size(), 6, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        for each, model, given in ((optimizer, ours, inputs[hvd.rank()]), (plain, whole, inputs.flatten(0, 1))):
            each.zero_grad()
            (model(given) - given[:, :1]).square().mean().backward()
            each.step()
    for a, b in zip(ours.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


CASES = (
    in_every_shape,
    with_every_option,
    half_precision,
    memory_formats,
    an_empty_batch,
    in_a_process_set,
    evaluation_asks_nobody,
    inputs_without_gradient_and_double_backward,
    misuse,
    train_like_one_rank,
)


@pytest.mark.parametrize(("ranks", "case"), [(n, case) for n in (2, 3) for case in CASES])
def test_synchronized_batch_normalization(ranks, case):
    world(ranks).run(case)


def alone():
    compare((None, CHANNELS, 2), torch.float64, 1e-12)


def test_on_one_rank_it_is_torchs():
    world(1).run(alone)


def test_evaluation_needs_no_world():
    assert hvd.SyncBatchNorm(CHANNELS).eval()(torch.ones(1, CHANNELS)).shape == (1, CHANNELS)
    with pytest.raises(hvd.NotInitializedError):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(2, CHANNELS))
