"""DistributedOptimizer: what it adds to an optimizer, and what it leaves."""

import copy
import logging
import warnings

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)


def linear(dtype=torch.float64):
    """A model with the same parameters on every rank, and this rank's input."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)
    inputs = torch.arange(4, dtype=dtype).repeat(3, 1) * (hvd.rank() + 1) / 10
    return model, inputs


def averaged(model, inputs_of_ranks):
    """The gradients that averaging over the ranks must give, computed here alone."""
    model = copy.deepcopy(model)
    model.zero_grad()
    sum(model(inputs).square().mean() for inputs in inputs_of_ranks).div(len(inputs_of_ranks)).backward()
    return [parameter.grad for parameter in model.parameters()]


def everyones(inputs):
    return hvd.allgather_object(inputs)


def check_reduction(**options):
    model, inputs = linear()
    expected = averaged(model, everyones(inputs))
    if options.pop("lists", False):
        options["groups"] = [[model[0].weight, model[2].weight], [model[0].bias]]
    names = options.pop("names", True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters() if names else None, **options
    )
    factor = hvd.size() if options.get("op") == hvd.Sum else 1
    tolerance = 1e-2 if "compression" in options else 1e-12
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.synchronize()
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(parameter.grad, factor * gradient, rtol=tolerance, atol=tolerance)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.step()
    for parameter, old, gradient in zip(model.parameters(), before, expected, strict=True):
        assert torch.allclose(parameter, old - 0.1 * factor * gradient, atol=tolerance)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"names": False},
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 2.0},
        {"groups": 2},
        {"num_groups": 3},
        {"lists": True},
        {"compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.bf16, "groups": 1},
    ],
    ids=str,
)
def test_gradients_are_averages_over_the_ranks(ranks, options):
    world(ranks).run(reduce_with, options)


def reduce_with(options):
    check_reduction(**options)


def accumulate():
    model, inputs = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=2, overlap=True)
    expected = averaged(model, everyones(inputs))
    for step in range(2):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        assert optimizer.submitted_bytes == 0
        model(inputs).square().mean().backward()
        assert bool(optimizer.submitted_bytes) == (hvd.size() > 1 and step > 0)
        optimizer.synchronize()
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(parameter.grad, 2 * gradient)
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


@pytest.mark.parametrize("ranks", [1, 2])
def test_gradients_of_several_passes_are_added_first(ranks):
    world(ranks).run(accumulate)


def leftover():
    """Three batches, two of which make a step: the third is dropped, or the next pass says what has happened."""
    model, inputs = linear()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters(), backward_passes_per_step=2
    )
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("farandole").addHandler(handler)
    for _ in range(2):
        for batch in range(3):
            optimizer.zero_grad() if batch == 0 else None
            model(inputs).square().mean().backward()
            if batch == 1:
                optimizer.step()
                expected = averaged(model, everyones(inputs))
                for parameter, gradient in zip(model.parameters(), expected, strict=True):
                    assert torch.allclose(parameter.grad, 2 * gradient)
                optimizer.zero_grad()
    logging.getLogger("farandole").removeHandler(handler)
    assert len(lines) == 1 and "zero_grad() drops the gradients of 1 of 2 backward passes" in lines[0], lines
    model(inputs).square().mean().backward()  # the second pass of this step
    with pytest.raises(ValueError, match=r"computed again .* is 2; .*multiple of 2, call step\(\).*drop_last=True"):
        model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()  # of what is there


def test_a_leftover_of_accumulation_is_named():
    world(2).run(leftover)


def misuse():
    model, inputs = linear()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loss = model(inputs).square().mean()
    loss.backward()
    with pytest.raises(ValueError, match=r"zero_grad\(\) came between"):
        optimizer.zero_grad()
    with pytest.raises(ValueError, match="computed again"):
        model(inputs).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(parameter.grad is not None for parameter in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(optimizer)


def test_misuse_is_detected():
    world(2).run(misuse)


def branches():
    """Each rank's loss leaves out other parameters; nobody hangs and all ranks agree."""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 1, bias=False) for _ in range(hvd.size() + 1)]).double()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    frozen = model[-1].weight.requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model[hvd.rank()](torch.ones(1, 2, dtype=torch.float64)).sum().backward()
        optimizer.step()
        for branch in model[:-1]:
            assert branch.weight.grad.tolist() == [[1 / hvd.size()] * 2]
    assert frozen.grad is None
    frozen.requires_grad_(True)
    optimizer.zero_grad()
    model[-1](torch.ones(1, 2, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert frozen.grad.tolist() == [[1.0, 1.0]]
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_parameters_without_gradients_are_reduced_too(ranks):
    world(ranks).run(branches)


def clip():
    model, inputs = linear()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    expected = averaged(model, everyones(inputs))
    for skips in (False, True):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        if not skips:
            assert torch.allclose(norm, torch.cat([gradient.flatten() for gradient in expected]).norm())
        with optimizer.skip_synchronize() if skips else torch.enable_grad():
            optimizer.step()
        expected = averaged(model, everyones(inputs))


def test_gradients_can_be_clipped_between_synchronize_and_step():
    world(2).run(clip)


def complex_parameters(**options):
    """Beside a real one; they are broadcast, too."""
    rank, ranks = hvd.rank(), hvd.size()
    parameters = {"z": torch.full((3,), complex(rank, 1)), "w": torch.full((2,), float(rank))}
    parameters = {name: torch.nn.Parameter(each) for name, each in parameters.items()}
    hvd.broadcast_parameters(parameters, root_rank=1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters.values(), lr=0.5), parameters.items(), **options)
    for _ in range(3):
        optimizer.zero_grad()
        ((parameters["z"] * complex(2 * rank, 4)).real.sum() + (parameters["w"] * 2 * rank).sum()).backward()
        optimizer.step()
    mean = sum(range(ranks)) / ranks
    assert parameters["z"].tolist() == [1 + 1j - 1.5 * (2 * mean - 4j)] * 3
    assert parameters["w"].tolist() == [1 - 1.5 * 2 * mean] * 2


def complex_parameters_in_all_ways():
    for options in ({}, {"num_groups": 1}, {"compression": hvd.Compression.fp16}, {"overlap": True}):
        complex_parameters(**options)


def test_complex_parameters_are_trained():
    world(2).run(complex_parameters_in_all_ways)


def still_the_users_optimizer():
    model, inputs = linear()
    plain = torch.optim.Adam([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}], lr=0.1)
    early = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    assert isinstance(optimizer, torch.optim.Adam)
    assert type(optimizer).__name__ == "Adam"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        early.step()
        late.step()
    assert [round(group["lr"], 6) for group in optimizer.param_groups] == [0.001, 0.005]
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    states = hvd.allgather_object([parameter.tolist() for parameter in model.parameters()])
    assert all(each == states[0] for each in states)


@pytest.mark.parametrize("ranks", [1, 2])
def test_schedulers_state_dict_and_isinstance_work(ranks):
    world(ranks).run(still_the_users_optimizer)


def test_closures_see_reduced_gradients():
    assert_same(world(2).run(closures_of_one_loss))


def closures_of_one_loss():
    """With the same loss on all ranks LBFGS stays in step: its decisions depend on reduced gradients only."""
    model, _ = linear()
    inputs = torch.ones(3, 4, dtype=torch.float64)
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters(), max_iter=5), model.named_parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    first = closure().item()
    optimizer.synchronize()
    optimizer.step(closure)
    optimizer.step(closure=closure)
    assert closure().item() < first / 10
    optimizer.synchronize()
    return [parameter.tolist() for parameter in model.parameters()]


def assert_same(results):
    assert all(each == results[0] for each in results)


def sparse(as_dense):
    embedding = torch.nn.Embedding(5, 2, sparse=True).double()
    hvd.broadcast_parameters(embedding.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=0.1),
        embedding.named_parameters(),
        sparse_as_dense=as_dense,
        overlap=True,
    )
    for step in range(3):
        optimizer.zero_grad()
        before = embedding.weight.detach().clone()
        if step == 0 or hvd.rank() == 0:  # who had a sparse gradient once has an empty one later
            embedding(torch.tensor([hvd.rank(), 4, 4])).sum().backward()
        assert optimizer.submitted_bytes > 0 or hvd.rank() or not step
        optimizer.step()
        assert embedding.weight.grad.layout is (torch.strided if as_dense else torch.sparse_coo)
        ranks = hvd.size() if step == 0 else 1
        expected = torch.zeros(5, 2).double()
        expected[:ranks] += 1 / hvd.size()
        expected[4] += 2 * ranks / hvd.size()
        assert torch.allclose(embedding.weight.grad.to_dense(), expected)
        assert torch.allclose(embedding.weight, before - 0.1 * expected)
    assert len(set(map(str, hvd.allgather_object(embedding.weight.tolist())))) == 1


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients_are_gathered_or_made_dense(as_dense):
    world(2).run(sparse, as_dense)


def sparse_adam_of_dense_sums():
    embedding = torch.nn.Embedding(5, 2, sparse=True).double()
    hvd.broadcast_parameters(embedding.state_dict(), root_rank=0)
    alone = copy.deepcopy(embedding)
    plain = torch.optim.SparseAdam(alone.parameters(), lr=0.1)
    optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, embedding.named_parameters(), sparse_as_dense=True)
    for step in range(3):
        optimizer.zero_grad()
        if step == 0 or hvd.rank() == 0:  # later one rank has no gradient
            embedding(torch.tensor([hvd.rank(), 4])).sum().backward()
        optimizer.step()
        rows = [0, 1, 4, 4] if step == 0 else [0, 4]
        alone.weight.grad = None
        (alone(torch.tensor(rows)).sum() / hvd.size()).backward()
        plain.step()
        assert embedding.weight.grad.layout is torch.sparse_coo
        assert torch.allclose(embedding.weight, alone.weight)


def test_an_optimizer_for_sparse_gradients_only_takes_those_reduced_as_dense_ones():
    world(2).run(sparse_adam_of_dense_sums)


def sparse_in_groups():
    embedding, linear = torch.nn.Embedding(5, 2, sparse=True).double(), torch.nn.Linear(2, 1).double()
    parameters = [embedding.weight, *linear.parameters()]
    for each in parameters:
        torch.nn.init.ones_(each)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), groups=1, backward_passes_per_step=2, op=hvd.Sum
    )
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            linear(embedding(torch.tensor([hvd.rank()]))).sum().backward()
        optimizer.synchronize()
        assert linear.bias.grad.tolist() == [2.0 * hvd.size()]
        assert embedding.weight.grad.to_dense().tolist() == [[2.0] * 2] * hvd.size() + [[0.0] * 2] * (5 - hvd.size())


def test_sparse_gradients_leave_their_group():
    world(2).run(sparse_in_groups)


def sparse_on_one_rank_only():
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=0.1), embedding.named_parameters())
    if hvd.rank() == 0:
        embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(hvd.MismatchError, match=r"gradient\.weight.*rank 0.*rank 1"):
        optimizer.step()
    optimizer.zero_grad()
    embedding(torch.tensor([1])).sum().backward()
    optimizer.step()


def test_a_rank_that_cannot_know_that_a_gradient_is_sparse_is_told():
    world(2).run(sparse_on_one_rank_only)


def discarded():
    model, inputs = linear()
    first = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    del first
    second = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(inputs).square().mean().backward()
    second.step()


def test_a_discarded_optimizer_leaves_the_model_alone():
    world(2).run(discarded)


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def test_names_are_checked(alone):
    model = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="1 of the optimizer's 2 parameters have no name"):
        hvd.DistributedOptimizer(sgd, [("weight", model.weight)])
    with pytest.raises(ValueError, match="not unique: same"):
        hvd.DistributedOptimizer(sgd, [("same", model.weight), ("same", model.bias)])
    with pytest.raises(ValueError, match="pairs"):
        hvd.DistributedOptimizer(sgd, model.parameters())
    with pytest.raises(ValueError, match=r"torch\.optim\.Optimizer"):
        hvd.DistributedOptimizer(model)
    with pytest.raises(ValueError, match="groups"):
        hvd.DistributedOptimizer(sgd, groups=[[torch.zeros(1)]])
    with pytest.raises(ValueError, match="backward_passes_per_step=0"):
        hvd.DistributedOptimizer(sgd, backward_passes_per_step=0)
    with pytest.raises(ValueError, match="overlap='no' must be True, False or None"):
        hvd.DistributedOptimizer(sgd, overlap="no")
    assert type(sgd) is torch.optim.SGD


def different_models():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), overlap=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.weight.data = torch.ones(1, 2 + hvd.rank())
    line = different_models.__code__.co_firstlineno + 9
    model(torch.ones(1, 2 + hvd.rank())).sum().backward()
    with pytest.raises(hvd.MismatchError, match=rf"'gradient\.weight'.*test_optimizer\.py:{line}\).*:{line}\)"):
        optimizer.step()


def test_ranks_whose_models_differ_are_told_where_their_backward_stands():
    world(2).run(different_models)


def only_the_set_is_averaged():
    pair = hvd.add_process_set([0, 2])
    model, inputs = linear()
    everybody = everyones(inputs)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), process_set=pair
    )
    model(inputs).square().mean().backward()
    optimizer.synchronize()
    expected = averaged(model, [everybody[0], everybody[2]] if pair.included() else [inputs])
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-12, atol=1e-12)
    optimizer.step()
    assert hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="add_process_set"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), process_set=pair)


def test_gradients_are_averaged_in_a_process_set():
    world(3).run(only_the_set_is_averaged)


def test_every_name_is_there_once():
    assert len(set(hvd.__all__)) == len(hvd.__all__)
    assert [name for name in hvd.__all__ if not hasattr(hvd, name)] == []
