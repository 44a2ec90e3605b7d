"""Optimizers with states of any kind, drawn by a seed, and their exact contents."""

import collections
import random

import torch

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool]
SHAPES = [(), (1,), (3,), (2, 3), (0,), (2, 0), (4, 1, 2)]


class Drawn(torch.optim.Optimizer):
    """Whose state a test writes."""

    def step(self, closure=None):
        return None


class OwnFormat(Drawn):
    """Whose state_dict has more in it than torch's, as copies of Lookahead have it."""

    def state_dict(self):
        return {**super().state_dict(), "format": "own"}

    def load_state_dict(self, state_dict):
        assert state_dict["format"] == "own"
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "format"})


def tensor(draw, shape=None):
    values = torch.tensor([draw.uniform(-3, 200) for _ in range(24)], dtype=torch.float64)
    shape = draw.choice(SHAPES) if shape is None else shape
    return values[: torch.Size(shape).numel()].reshape(shape).to(draw.choice(DTYPES))


def entry(draw, depth=0):
    kinds = ["tensor"] * 4 + ["number", "none", "text", "flag"] + (["dict", "list", "tuple"] if depth < 2 else [])
    kind = draw.choice(kinds)
    if kind == "tensor":
        return tensor(draw)
    if kind == "dict":
        return {draw.choice(["a", "step", 3]): entry(draw, depth + 1) for _ in range(2)}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(entry(draw, depth + 1) for _ in range(2))
    return {"number": draw.randrange(9), "none": None, "text": "text", "flag": draw.random() < 0.5}[kind]


def drawn(seed, has_state=True, own_format=False):
    """An optimizer whose parameters depend on the seed alone, and its state on `has_state`, too."""
    draw = random.Random(seed)
    parameters = [
        torch.nn.Parameter(torch.ones(draw.choice(SHAPES), dtype=draw.choice(FLOATS)))
        for _ in range(draw.randrange(1, 4))
    ]
    groups = [{"params": [each]} for each in parameters] if draw.random() < 0.5 else [{"params": parameters}]
    kind = OwnFormat if own_format else Drawn
    optimizer = kind(groups, {"lr": 0.1, "capturable": draw.random() < 0.3, "factor": 0.0})
    if has_state:
        for parameter in parameters:
            if draw.random() < 0.8:
                state = optimizer.state[parameter]
                state["step"] = draw.choice([3, torch.tensor(3.0), torch.tensor(3)])
                state["master"] = parameter.detach().float() * draw.uniform(1, 2)
                state.update((name, entry(draw)) for name in "abc")
        if not own_format:
            optimizer.state["of all"] = entry(draw)
        optimizer.param_groups[-1]["lr"] = draw.choice([0.25, torch.tensor(0.3), torch.tensor(0.3).bfloat16()])
        optimizer.param_groups[-1]["factor"] = entry(draw)
    return optimizer


def exact(value):
    """A state as plain values, whose equality means the same dtypes, shapes, bits and kinds of containers."""
    if isinstance(value, torch.Tensor):
        content = value.detach().contiguous().view(-1).view(torch.uint8).tolist()
        return "tensor", str(value.dtype), tuple(value.shape), content
    if isinstance(value, collections.abc.Mapping):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(exact, value))
    return type(value), value


def forged(optimizer):
    """Change all of a state in place, and where it has a value for a parameter take some away."""
    for state in list(optimizer.state.values())[::2]:
        if isinstance(state, dict):
            for name, value in list(state.items()):
                if isinstance(value, torch.Tensor):
                    value.zero_()
                else:
                    del state[name]
    if len(optimizer.state) > 1:
        optimizer.state.popitem()
    optimizer.param_groups[-1]["lr"] = 9.0
