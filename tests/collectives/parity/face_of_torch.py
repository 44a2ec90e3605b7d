from __future__ import annotations

import farandole_torch
import numpy as np
import torch
from faces import Face
from steps import LEARNING_RATE, STEPS, Options, factors, start
from torch_device import DEVICE


def make(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(DEVICE)
    return torch.from_numpy(array.copy()).to(DEVICE)


def read(tensor: torch.Tensor) -> np.ndarray:
    return (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).cpu().numpy()


def optimizer(dtype: str, options: Options) -> list[np.ndarray]:
    weights = [torch.nn.Parameter(make(array)) for array in start(dtype)]
    sgd = farandole_torch.DistributedOptimizer(
        torch.optim.SGD(weights, lr=LEARNING_RATE),
        [(f"torch.{options}.{i}", weight) for i, weight in enumerate(weights)],
        compression=getattr(farandole_torch.Compression, options.compression),
        op=getattr(farandole_torch, options.op),
        gradient_predivide_factor=options.predivide,
        num_groups=options.groups,
    )
    for step in range(STEPS):
        sgd.zero_grad()
        sum((w * w * make(x)).sum() for w, x in zip(weights, factors(dtype, step), strict=True)).backward()
        sgd.step()
    return [weight.detach().cpu().numpy() for weight in weights]


FACE = Face("torch", farandole_torch, make, read, {"DistributedOptimizer": optimizer})
