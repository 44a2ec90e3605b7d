"""broadcast_parameters and broadcast_optimizer_state."""

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import world
from farandole_torch import _broadcasting
from versions import needs

pytestmark = pytest.mark.timeout(180)

OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1 * (hvd.rank() + 1), momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1 * (hvd.rank() + 1), amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.01 * hvd.rank()),
    "fused adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1 * (hvd.rank() + 1), fused=True),
    "adam with a tensor": lambda parameters: torch.optim.Adam(
        parameters, lr=torch.tensor(0.1 * (hvd.rank() + 1)), foreach=False, maximize=hvd.rank() == 0
    ),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3),
}
MARKS = {"fused adam": needs(2, 4, "fused Adam on the host")}


def make(kind, steps):
    model = torch.nn.Linear(3, 2)
    optimizer = OPTIMIZERS[kind](model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(1, 3)).square().sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    optimizer.zero_grad()
    return model, optimizer


def flat(value):
    """A state as plain values that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    return [flat(item) for item in value] if isinstance(value, list | tuple) else value


def restore(kind, root):
    """Only the root has trained; its state goes to all, and nobody's parameters or step counts move."""
    model, optimizer = make(kind, steps=3 if hvd.rank() == root else 0)
    parameters, own = flat(model.state_dict()), flat(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    assert flat(model.state_dict()) == parameters
    assert all(parameter.grad is None for parameter in model.parameters())
    states = hvd.allgather_object(flat(optimizer.state_dict()))
    assert all(state == states[root] for state in states)
    if hvd.rank() == root:
        assert flat(optimizer.state_dict()) == own
    if "adam" in kind:
        assert states[0]["state"][0]["step"] == 3
    optimizer.zero_grad()
    model(torch.ones(1, 3)).square().sum().backward()
    if kind != "lbfgs":
        optimizer.step()


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("kind", [pytest.param(each, marks=MARKS.get(each, ())) for each in OPTIMIZERS])
def test_ranks_without_state_receive_the_roots(ranks, kind):
    for root in {0, ranks - 1}:
        world(ranks).run(restore, kind, root)


def of_sparse_momentum():
    """A state that no operation takes: the momentum of an embedding's sparse gradient."""
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.5)
    if hvd.rank() == 0:
        embedding(torch.tensor([1, 3])).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    momentum = optimizer.state_dict()["state"][0]["momentum_buffer"]
    assert momentum.is_sparse and momentum.to_dense().tolist() == [[0.0] * 2, [1.0] * 2] * 2


def test_sparse_momentum():
    world(2).run(of_sparse_momentum)


def test_state_of_a_gpu_goes_to_the_ranks_own_gpu():
    """Without one here, "meta" stands for it; a step count on the host stays there."""
    parameters = [torch.nn.Parameter(torch.ones(2, device=device)) for device in ("cpu", "meta")]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    given, tensors = (torch.ones((), device="meta"), torch.ones(()), torch.ones(3, device="meta").double()), []
    places = [_broadcasting._taken_out(value, tensors) for value in given]
    made = []
    for place in places:
        _broadcasting._new_tensor(place, made, _broadcasting._devices(optimizer))
    assert [each.device.type for each in made] == ["meta", "cpu", "meta"]
    assert [(each.shape, each.dtype) for each in made] == [(each.shape, each.dtype) for each in tensors]
    only_host = _broadcasting._devices(torch.optim.SGD(parameters[:1], lr=1.0))
    assert _broadcasting._new_tensor(places[0], made, only_host) and made[-1].device.type == "cpu"


def forget():
    _, optimizer = make("adam", steps=0 if hvd.rank() == 0 else 2)
    hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(optimizer), root_rank=0)
    return len(optimizer.state)


def test_an_empty_state_of_the_root_empties_the_others():
    assert world(2).run(forget) == [0, 0]


def buffers():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    model(torch.randn(8, 2))
    hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.size() - 1)
    states = hvd.allgather_object(flat(dict(model.state_dict())))
    assert all(state == states[0] for state in states)
    assert states[0]["1.num_batches_tracked"] == 1
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    hvd.broadcast_parameters(model.parameters(), root_rank=0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_parameters_and_buffers_become_the_roots(ranks):
    world(ranks).run(buffers)


class WithExtraState(torch.nn.Linear):
    """Whose state_dict has an object in it: a dict of its own, or a copy."""

    def __init__(self, settings):
        super().__init__(2, 1)
        self.settings = settings

    def get_extra_state(self):
        return self.settings

    def set_extra_state(self, state):
        self.settings = state


def extra_state():
    root = hvd.size() - 1
    values = [{"rate": hvd.rank(), "names": ["a"] * hvd.rank()}, [hvd.rank()] * 2, torch.ones(2) * hvd.rank()]
    values += [f"rank {hvd.rank()}", None if hvd.rank() == root else {}]
    model = torch.nn.Sequential(*map(WithExtraState, values))
    state = model.state_dict()
    hvd.broadcast_parameters(state, root_rank=root)
    wanted = [{"rate": root, "names": ["a"] * root}, [root] * 2, [root] * 2, f"rank {root}", None]
    assert flat([state[f"{i}._extra_state"] for i in range(5)]) == wanted
    assert flat([layer.settings for layer in model[:3]]) == wanted[:3]  # their own objects
    model.load_state_dict(state)
    assert flat([layer.settings for layer in model]) == wanted
    assert len({str(flat(dict(each))) for each in hvd.allgather_object(model.state_dict())}) == 1


def test_extra_state_becomes_the_roots():
    world(2).run(extra_state)


def wrong_arguments():
    with pytest.raises(ValueError, match=r"torch\.optim\.Optimizer"):
        hvd.broadcast_optimizer_state(torch.nn.Linear(1, 1), root_rank=0)
    with pytest.raises(ValueError, match="mapping"):
        hvd.broadcast_parameters(None, root_rank=0)
    _, optimizer = make("sgd", 0)
    if hvd.size() > 1:
        with pytest.raises(ValueError, match="root_rank=9"):
            hvd.broadcast_optimizer_state(optimizer, root_rank=9)


def test_wrong_arguments_are_refused():
    world(2).run(wrong_arguments)
