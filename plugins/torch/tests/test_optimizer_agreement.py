"""Which parameters an optimizer reduces: those that no later one has, and the same on all ranks."""

import copy
import gc

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from training import goes_on, loss_of, network, wrapped

pytestmark = pytest.mark.timeout(180)


def two_optimizers_for_one_model():
    """The later one has the parameters; the earlier one says so, whatever order they are stepped in."""
    model = network()
    earlier = wrapped(model)
    loss_of(model).backward()
    earlier.step()
    later = wrapped(model)
    goes_on(model, later)
    loss_of(model).backward()
    with pytest.raises(ValueError, match=r"'0\.weight' is reduced by another DistributedOptimizer, .*later"):
        earlier.step()
    later.synchronize()
    with pytest.raises(ValueError, match="distributed already; wrap it once"):
        hvd.DistributedOptimizer(later)
    goes_on(model, later)
    part = hvd.DistributedOptimizer(torch.optim.SGD(model[2].parameters(), lr=0.1))
    loss_of(model).backward()
    with pytest.raises(ValueError, match=r"'2\.weight' is reduced by another"):
        later.step()
    part.step()


def two_kinds_of_optimizers_for_one_model(kinds):
    """One by gradients, one by Adasum: the later one has the parameters, whichever it is."""
    model = network()
    earlier, later = (wrapped(model, op=op) for op in kinds)
    loss_of(model).backward()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"'0\.weight' is reduced by another DistributedOptimizer, .*later"):
        earlier.step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    later.step()
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1


def an_optimizer_whose_successor_is_gone(in_a_cycle):
    """It has its parameters back as soon as nobody has the other one."""
    model = network()
    earlier = wrapped(model)
    part = hvd.DistributedOptimizer(torch.optim.SGD(model[2].parameters(), lr=0.1), model[2].named_parameters())
    loss_of(model).backward()
    with pytest.raises(ValueError, match=r"'2\.weight' is reduced by another.*or delete it"):
        earlier.step()
    part.step()
    earlier.zero_grad()
    if in_a_cycle:
        part.itself = part
    del part
    if in_a_cycle:  # nobody knows yet that it is gone
        loss_of(model).backward()
        with pytest.raises(ValueError, match=r"'2\.weight' is reduced by another"):
            earlier.step()
    for _ in range(2):
        goes_on(model, earlier)
    loss_of(model).backward()
    with pytest.raises(ValueError, match="computed again"):
        loss_of(model).backward()  # its hooks are at work
    earlier.step()
    earlier.zero_grad()


def a_second_optimizer_in_the_midst_of_a_step():
    model = network()
    first = wrapped(model)
    loss_of(model).backward()
    for another in (lambda: wrapped(model), lambda: wrapped(model, op=hvd.Adasum)):
        with pytest.raises(ValueError, match=r"is reducing '0\.weight': call its step\(\) or synchronize\(\) before"):
            another()
    first.step()
    first.zero_grad()
    goes_on(model, first)


def a_group_that_cannot_be_added():
    """The optimizer is as before, and the group may come later."""
    model, more = network(), torch.nn.Linear(2, 2).double()
    optimizer, other = wrapped(model), wrapped(more)
    more(torch.ones(1, 2).double()).sum().backward()
    names = list(optimizer._farandole_names.chosen)
    with pytest.raises(ValueError, match="another DistributedOptimizer is reducing"):
        optimizer.add_param_group({"params": list(more.parameters())})
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": list(model.parameters())})
    assert (len(optimizer.param_groups), optimizer._farandole_names.chosen) == (1, names)
    goes_on(model, optimizer)
    other.step()
    optimizer.add_param_group({"params": more.parameters()})
    goes_on(torch.nn.Sequential(model, more), optimizer)


def names_that_look_like_positions():
    """A group whose names are taken has others, also where the user's are what ours would be."""
    model, more = network(), torch.nn.Linear(2, 2).double()
    named = [(f"parameter.{i + 1}", parameter) for i, parameter in enumerate(model.parameters())]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named)
    optimizer.add_param_group({"params": more.parameters()})
    optimizer.add_param_group({"params": [torch.zeros(1, dtype=torch.float64, requires_grad=True)]})
    assert optimizer._farandole_names.chosen == [f"parameter.{i + 1}" for i in range(7)]
    goes_on(torch.nn.Sequential(model, more), optimizer)


def a_discarded_optimizer_is_not_missed():
    """Training goes on by hand; hooks of an optimizer that is gone do nothing."""
    model = network()
    optimizer = wrapped(model)
    optimizer.cycle = optimizer
    del optimizer
    gc.collect()
    if hvd.rank() == 0:
        loss_of(model).backward()
        loss_of(model).backward()
    goes_on(model, wrapped(model))


def steps_alike(model, optimizer):
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert len(set(map(str, hvd.allgather_object(model.state_dict())))) == 1
    optimizer.zero_grad()


def frozen_on_one_rank(when, options):
    """In the first step or later; frozen or thawed: all ranks are told which parameter and by whom, at once."""
    model = network()
    if when == "thawed":
        model[2].bias.requires_grad_(False)
    optimizer = wrapped(model, **options)
    trains = goes_on if "op" not in options else steps_alike
    if when != "at first":
        for _ in range(2):
            trains(model, optimizer)
    guilty = hvd.size() - 1
    if hvd.rank() == guilty:
        model[2].bias.requires_grad_(when == "thawed")
    frozen = [k for k in range(hvd.size()) if (k == guilty) == (when != "thawed")]
    others = [k for k in range(hvd.size()) if k not in frozen]
    told = rf"'2\.bias' is frozen on rank {', '.join(map(str, frozen))} and .* on rank {', '.join(map(str, others))}"
    before = copy.deepcopy(model.state_dict())
    for _ in range(2):
        loss_of(model).backward()
        with pytest.raises(hvd.MismatchError, match=told):
            optimizer.step()
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        optimizer.zero_grad()
    model[2].bias.requires_grad_(when != "thawed")
    trains(model, optimizer)
    model[2].bias.requires_grad_(when == "thawed")  # on all ranks
    trains(model, optimizer)


def another_number_of_parameters():
    model = network()
    more = [torch.nn.Parameter(torch.ones(1).double())] if hvd.rank() == 1 else []
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([*model.parameters(), *more], lr=0.1), [*model.named_parameters(), *(("x", p) for p in more)]
    )
    loss_of(model).backward()
    told = "do not have the same parameters: rank 1 has 'x', which rank 0 lacks; build the same model on all ranks"
    with pytest.raises(hvd.MismatchError, match=told):
        optimizer.step()
    goes_on(model, wrapped(model))


def other_settings():
    """Ranks disagree about what to reduce; nothing is left in flight, so the same names can be used again."""
    last = hvd.rank() == hvd.size() - 1
    next_step = "; give the same `groups` on all ranks$"
    for options, told in (
        (
            {"groups": 1 if last else 0},
            r"same groups: rank 1 has '0\.weight'; .* in one, and rank 0 has not" + next_step,
        ),
        (
            {"groups": 2 if last else 1},
            r"same groups: rank 0 has '0\.weight'; .* in one, and rank 1 has not.*" + next_step,
        ),
        (
            {"op": hvd.Adasum if last else hvd.Average},
            "same: rank 0 has gradients; rank 1 has .* as op=Adasum asks for; make",
        ),
    ):
        model = network()
        optimizer = wrapped(model, **options)
        for _ in range(2):
            loss_of(model).backward()
            with pytest.raises(hvd.MismatchError, match=told):
                optimizer.step()
            optimizer.zero_grad()
        for right in ({"groups": 1}, {"groups": 2}, {}):
            goes_on(model, wrapped(model, **right))


def another_order():
    model = network()
    parameters = list(model.parameters())[:: 1 if hvd.rank() else -1]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), model.named_parameters())
    loss_of(model).backward()
    told = r"another order: number 0 is '2\.bias' on rank 0; '0\.weight' on rank 1; give them in one order on all"
    with pytest.raises(hvd.MismatchError, match=told):
        optimizer.step()
    goes_on(model, wrapped(model))


def another_order_of_groups():
    model = network()
    groups = [list(layer.parameters()) for layer in (model[0], model[2])][:: 1 if hvd.rank() else -1]
    optimizer = wrapped(model, groups=groups)
    loss_of(model).backward()
    with pytest.raises(hvd.MismatchError, match="the same groups in another order: give `groups` in one order"):
        optimizer.step()
    goes_on(model, wrapped(model))


CASES = (
    other_settings,
    another_order,
    another_order_of_groups,
    two_optimizers_for_one_model,
    a_second_optimizer_in_the_midst_of_a_step,
    a_group_that_cannot_be_added,
    names_that_look_like_positions,
    a_discarded_optimizer_is_not_missed,
    another_number_of_parameters,
)


@pytest.mark.parametrize("case", CASES)
def test_it_is_told_and_training_goes_on(case):
    world(2).run(case)


@pytest.mark.parametrize("kinds", [(hvd.Average, hvd.Adasum), (hvd.Adasum, hvd.Average), (hvd.Adasum, hvd.Adasum)])
def test_the_later_of_two_kinds_of_optimizers_has_the_parameters(kinds):
    world(2).run(two_kinds_of_optimizers_for_one_model, kinds)


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_an_optimizer_whose_successor_is_gone_has_its_parameters_back(in_a_cycle):
    world(2).run(an_optimizer_whose_successor_is_gone, in_a_cycle)


@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"groups": 2}, {"op": hvd.Adasum}], ids=str)
@pytest.mark.parametrize("when", ["at first", "later", "thawed"])
def test_a_parameter_that_is_frozen_on_one_rank_only_is_named_on_all(when, options):
    world(3).run(frozen_on_one_rank, when, options)
