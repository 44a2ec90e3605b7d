"""States of elastic training with PyTorch: commits in place, restored tensors, optimizers after a failed step."""

import copy
import os
import random

import farandole
import farandole_torch as hvd
import pytest
import torch
from farandole._start import environment
from farandole._start import world as start
from farandole._start.bootstrap import Rendezvous
from farandole.testing import spawn, world

pytestmark = pytest.mark.timeout(180)


def parts(seed=0, kind=torch.optim.Adam, wrap=True):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = kind(model.parameters(), lr=0.1)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters()) if wrap else optimizer


def step(model, optimizer, seed=0):
    optimizer.zero_grad()
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    model(inputs).square().mean().backward()
    optimizer.step()


def everything(model, optimizer):
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


def are_equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return one == other


# ---- Alone


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


@pytest.mark.parametrize("kind", [torch.optim.Adam, lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)])
def test_training_goes_on_from_the_last_commit_as_if_nothing_had_been(alone, kind):
    model, optimizer = parts(kind=kind)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler, epoch=0)
    state.commit()  # before the optimizer has a state
    for number in range(3):
        step(model, optimizer, number)
        scheduler.step()
    state.epoch = 1
    state.commit()
    kept = everything(model, optimizer)
    step(model, optimizer, 3)
    scheduler.step()
    expected = everything(model, optimizer)
    for _ in range(2):
        state.restore()
        assert are_equal(everything(model, optimizer), kept)
        assert (scheduler.last_epoch, state.epoch) == (3, 1)
        step(model, optimizer, 3)
        scheduler.step()
        assert are_equal(everything(model, optimizer), expected)


def test_a_new_process_goes_on_from_a_copy_as_if_nothing_had_been(alone):
    model, optimizer = parts()
    state = hvd.elastic.TorchState(model, optimizer, epoch=0)
    step(model, optimizer)
    state.epoch = 1
    state.commit()
    content = memoryview(b"".join(state._to_copy()))
    kept = everything(model, optimizer)
    step(model, optimizer, 1)  # the copy has its own memory
    others = parts(seed=5)
    fresh = hvd.elastic.TorchState(*others, epoch=0)
    fresh._from_copy(content)
    assert are_equal(everything(*others), kept) and (fresh.epoch, fresh._commits) == (1, 1)
    step(*others, 1)
    assert are_equal(everything(*others), everything(model, optimizer))
    wider = torch.nn.Linear(3, 9)
    with pytest.raises(farandole.MismatchError, match="the state does not fit the last commit"):
        hvd.elastic.TorchState(wider, torch.optim.SGD(wider.parameters(), lr=0.1), epoch=0)._from_copy(content)


def test_restore_to_before_the_first_step(alone):
    model, optimizer = parts()
    state = hvd.elastic.TorchState(model, optimizer)
    state.commit()
    kept = everything(model, optimizer)
    step(model, optimizer)
    state.restore()
    assert are_equal(everything(model, optimizer), kept)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_commits_reuse_two_copies_of_each_tensor(alone):
    model, optimizer = parts()
    state = hvd.elastic.TorchState(model, optimizer)
    step(model, optimizer)
    places = []
    for number in range(6):
        step(model, optimizer, number)
        state.commit()
        handler = state._handlers["optimizer"]
        places.append({each["exp_avg"].data_ptr() for each in handler._kept["state"].values()})
    assert places[0] == places[2] == places[4]
    assert places[1] == places[3] == places[5]
    assert not places[0] & places[1]
    live = {each["exp_avg"].data_ptr() for each in optimizer.state_dict()["state"].values()}
    state.restore()
    assert {each["exp_avg"].data_ptr() for each in optimizer.state_dict()["state"].values()} == live
    assert not live & (places[0] | places[1])


def test_a_commit_that_fails_half_way_loses_nothing(alone):
    class Fails:
        def state_dict(self):
            if model[0].bias[0] == 7:
                raise OSError("the disk of this scheduler is full")
            return {}

        def load_state_dict(self, state):
            pass

    model, optimizer = parts()
    state = hvd.elastic.TorchState(model, optimizer, zero=Fails())
    state.commit()
    kept = everything(model, optimizer)
    with torch.no_grad():
        model[0].bias.fill_(7)
    with pytest.raises(TypeError, match=r"^'zero' of the state, a Fails, cannot be copied"):
        state.commit()
    state.restore()
    assert are_equal(everything(model, optimizer), kept)


def test_extra_state_and_versions_of_modules_are_kept(alone):
    class Counting(torch.nn.BatchNorm1d):
        calls = 0

        def get_extra_state(self):
            return {"calls": self.calls}

        def set_extra_state(self, state):
            self.calls = state["calls"]

    model = Counting(2)
    state = hvd.elastic.TorchState(model)
    state.commit()
    model.calls = 3
    model(torch.randn(4, 2))
    state.restore()
    assert model.calls == 0
    assert model.num_batches_tracked == 0


NAMES = ["commits", "to_copy", "from_copy", "names", "handlers", "arrays", "tensors", "value", "epoch", "x"]
DTYPES = [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("seed", range(30))
def test_keywords_may_have_any_name_and_dtype(alone, seed):
    dice = random.Random(seed)

    def value():
        tensor = torch.tensor([dice.randint(0, 9), 1]).to(dice.choice(DTYPES))
        return dice.choice([0, "word", [1, 2], 2.5 if tensor.dtype is torch.bfloat16 else tensor.numpy(), tensor])

    given = {name: value() for name in dice.sample(NAMES, dice.randint(1, len(NAMES)))}
    state = hvd.elastic.TorchState(torch.nn.Linear(1, 1), **given)
    state.commit()
    kept = copy.deepcopy(given)
    for name in given:
        setattr(state, name, value())
    state.restore()
    for name, expected in kept.items():
        found = getattr(state, name)
        assert (type(found), getattr(found, "dtype", None)) == (type(expected), getattr(expected, "dtype", None))
        assert repr(found) == repr(expected)


def test_a_state_has_no_public_names_of_its_own(alone):
    names = {name for name in dir(hvd.elastic.TorchState()) if not name.startswith("_")}
    assert names - {name for name in dir(hvd.elastic.State) if not name.startswith("_")} == {"model", "optimizer"}


@pytest.mark.parametrize("kind", ["model", "optimizer", "sampler"])
def test_the_handlers_save_and_restore(alone, kind):
    model, optimizer = parts()
    sampler = hvd.elastic.ElasticSampler(range(8))
    value = {"model": model, "optimizer": optimizer, "sampler": sampler}[kind]
    assert issubclass(hvd.elastic.ModelStateHandler, hvd.elastic.StateHandler)
    registered = next(handler for of, handler in hvd.elastic.get_handler_registry() if isinstance(value, of))
    assert registered.__name__.lower() == f"{kind}statehandler"
    handler = registered(value)
    before = copy.deepcopy(value.state_dict())
    step(model, optimizer)
    sampler.record_batch(0, 2)
    after = copy.deepcopy(value.state_dict())
    handler.restore()
    assert are_equal(value.state_dict(), before) and not are_equal(before, after)
    value.load_state_dict(after)
    handler.sync()
    handler.set_value(value)
    handler.restore()
    assert are_equal(value.state_dict(), after) and handler.value is value
    with pytest.raises(NotImplementedError, match=r"StateHandler must have a method save\(\)"):
        hvd.elastic.StateHandler(value).save()


# ---- On several ranks


class Words:
    def __init__(self, words):
        self.words = words


class WordsHandler(hvd.elastic.StateHandler):
    def save(self):
        self.saved = self.value.words

    def restore(self):
        self.value.words = self.saved

    def sync(self):
        self.value.words = hvd.broadcast_object(self.value.words)
        self.save()


class LoudHandler(hvd.elastic.ModelStateHandler):
    def save(self):
        super().save()
        self.value.saves = getattr(self.value, "saves", 0) + 1


def _of_registered_types():
    """Rank 1 has the most commits; a handler of one's own sends rank 0's value, so all the others are rank 0's, too."""
    registry = hvd.elastic.get_handler_registry()
    hvd.elastic.set_handler_registry([(Words, WordsHandler), (torch.nn.Linear, LoudHandler), *registry])
    model = torch.nn.Linear(1, 1)
    torch.nn.init.constant_(model.weight, hvd.rank() + 1)
    words = Words(f"of rank {hvd.rank()}")
    state = hvd.elastic.TorchState(model, words=words, epoch=hvd.rank())
    for _ in range(hvd.rank() + 1):
        state.save()
        state._commits += 1
    state.sync()
    found = words.words, state.epoch, model.weight.item()
    words.words = "other"
    torch.nn.init.zeros_(model.weight)
    state.restore()
    hvd.elastic.set_handler_registry(registry)
    with pytest.raises(TypeError, match=r"^LoudHandler, a handler of set_handler_registry, sends its value to other"):
        state._check_copies()
    return found, words.words, model.weight.item(), model.saves > 1


def test_registered_handlers_are_used():
    assert world(2).run(_of_registered_types) == [(("of rank 0", 0, 1.0), "of rank 0", 1.0, True)] * 2


def _synced():
    model, optimizer = parts(seed=hvd.rank(), wrap=False)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler, epoch=hvd.rank())
    if hvd.rank() == 1:
        step(model, optimizer)
        scheduler.step()
        state.save()
        state._commits = 1
    before = everything(model, optimizer)
    state.sync()
    everybodys = hvd.allgather_object(everything(model, optimizer))
    same = are_equal(everybodys[0], everybodys[1]) and (hvd.rank() == 0 or are_equal(before, everybodys[1]))
    step(model, optimizer, 5)
    state.restore()
    restored = are_equal(everything(model, optimizer), everybodys[1])
    return same, restored, state.epoch, scheduler.last_epoch, state._commits, optimizer.state_dict()["state"] != {}


def test_sync_takes_everything_from_the_rank_with_the_most_commits():
    assert world(2).run(_synced) == [(True, True, 1, 1, 1, True)] * 2


def _joined():
    """Ranks 0 to 2 have the same state but for statistics of a layer, rank 3 has just joined."""
    model, optimizer = parts(seed=hvd.rank() // 3, wrap=False)
    model.register_buffer("across", torch.arange(12.0).add(hvd.rank() // 3).view(3, 4).t())  # not contiguous
    model.register_buffer("rows", torch.full((300, 400), 1.0 + hvd.rank() // 3, dtype=torch.bfloat16))
    state = hvd.elastic.TorchState(model, optimizer, epoch=hvd.rank() // 3)
    if hvd.rank() < 3:
        step(model, optimizer)
        state._commits, state._syncs = 2, 1
        model[1].running_mean += hvd.rank()
    state.save()
    mine = everything(model, optimizer)
    written, broadcast = [], state._tensors.broadcast
    state._tensors.broadcast = lambda arrays, root: (written.append(len(arrays)), broadcast(arrays, root))
    state.sync()
    everybodys = hvd.allgather_object(mine)
    is_level = are_equal(everything(model, optimizer), everybodys[0])
    step(model, optimizer, 5)
    state.restore()
    return is_level, are_equal(everything(model, optimizer), everybodys[0]), written, state._commits, state.epoch


def test_three_send_what_they_have_in_common_to_one_that_joins():
    assert world(4).run(_joined) == [(True, True, [1], 2, 0)] * 4


def _forgets_a_step_under_way(kind):
    """After `backward` alone, as where a rank is lost before `step`, the next step is as any other."""
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    options = {"op": hvd.Adasum} if kind == "adasum" else {"backward_passes_per_step": 2} if kind == "passes" else {}
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options
    )
    state = hvd.elastic.TorchState(model, optimizer)
    state.commit()

    def backward():
        model(torch.full((1, 3), 1.0 + hvd.rank())).sum().backward()

    backward()
    hvd.barrier()
    farandole.shutdown()  # as the loop does
    farandole.init()
    state.restore()
    assert optimizer.submitted_bytes == 0
    optimizer.zero_grad()
    for _ in range(2 if kind == "passes" else 1):
        backward()
    optimizer.step()
    state.on_reset()
    return model.weight.tolist(), model.weight.grad


@pytest.mark.parametrize("kind", ["plain", "passes", "adasum"])
def test_an_optimizer_forgets_the_step_that_failed(kind):
    one, other = world(2).run(_forgets_a_step_under_way, kind)
    assert one == other
    assert one[1] is None


def _outlives_its_world(options):
    """One optimizer in a world of two, whose first step fails half way in the next one, a world of one."""
    hvd.init()
    among = hvd.add_process_set([0, 1]) if options.pop("set", False) else None
    if hvd.rank() == 2:  # outside of the set
        hvd.barrier()
        return None
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 1, bias=False))
    torch.nn.init.ones_(model[0].weight)
    torch.nn.init.ones_(model[1].weight)
    if options.pop("lists", False):
        options["groups"] = [[model[0].weight, model[1].weight]]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=among, **options)
    state = hvd.elastic.TorchState(model, optimizer)
    passes = options.get("backward_passes_per_step", 1)

    def step(times=passes):
        optimizer.zero_grad()
        for _ in range(times):
            model(torch.full((1, 2), 1.0 + hvd.rank())).sum().div(passes).backward()
        if times == passes:
            optimizer.step()
        return model[0].weight[0, 0].item()

    state.save()  # a commit is one of the whole world
    together = step()
    state.restore()
    step(times=1 if passes > 1 else passes)
    hvd.barrier()
    number = hvd.rank()
    start.shutdown()
    start.enter_epoch(Rendezvous(environment.World()), (number,), 1, lambda: None, lambda mine: [mine])
    state.restore()
    state.on_reset()
    return together, step()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"op": hvd.Sum},
        {"groups": 1},
        {"lists": True},
        {"compression": hvd.Compression.fp16},
        {"gradient_predivide_factor": 2.0},
        {"backward_passes_per_step": 2},
        {"set": True},
        {"op": hvd.Adasum},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_an_optimizer_goes_on_with_other_ranks(options):
    results = spawn(3 if "set" in options else 2, _outlives_its_world, dict(options), timeout=60)[:2]
    # The gradient of the weight is the rank's input: 1 on rank 0, 2 on rank 1; alone, 1.
    expected = 1.0 - {hvd.Sum: 3.0, hvd.Adasum: 1.5}.get(options.get("op"), 1.5)
    assert [together for together, _ in results] == [pytest.approx(expected)] * 2
    assert [by_itself for _, by_itself in results] == [0.0] * 2


def _differing():
    extra = {"other": torch.nn.Linear(1, 1)} if hvd.rank() else {}
    try:
        hvd.elastic.TorchState(torch.nn.Linear(1, 1), epoch=0, **extra).sync()
    except hvd.MismatchError as error:
        return str(error)
    return "nothing"


def test_states_that_differ_are_told_on_all_ranks():
    for message in world(2).run(_differing):
        assert message.startswith("the ranks' states differ: rank 1 has 'other' (Linear), which rank 0 lacks")


def _of_other_shapes():
    try:
        hvd.elastic.TorchState(torch.nn.Linear(1, 1 + hvd.rank())).sync()
    except hvd.MismatchError as error:
        return str(error)
    return "nothing"


def test_models_that_differ_are_told_on_all_ranks():
    for message in world(2).run(_of_other_shapes):
        assert message.startswith("the ranks' states differ: rank 0 has weight (1, 1) of 'model' (Linear)")
        assert message.endswith("which rank 0 lacks; make the same model and optimizer on all ranks")


def _joined_by_another(op):
    """An optimizer that was made by a rank alone reduces once there are others."""
    hvd.init()
    start.shutdown()
    start.enter_epoch(Rendezvous(environment.World()), (0,), 1, lambda: None, lambda mine: [mine])
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=op)
    state = hvd.elastic.TorchState(optimizer=optimizer)
    number = int(os.environ["FARANDOLE_RANK"])
    (weight * number).sum().backward()
    optimizer.step()
    alone = weight.item()
    with torch.no_grad():
        weight.zero_()
    start.shutdown()
    start._state.given = start._state.met = None
    hvd.init()
    state.on_reset()
    (weight * (1 + hvd.rank())).sum().backward()
    optimizer.step()
    return alone, weight.item()


@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum], ids=["average", "adasum"])
def test_an_optimizer_of_a_rank_alone_reduces_when_others_join(op):
    assert spawn(2, _joined_by_another, op, timeout=60) == [(0.0, -1.5), (-1.0, -1.5)]
