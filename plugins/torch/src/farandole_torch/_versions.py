"""Which versions of PyTorch there is a use for: importing this module raises ImportError with any other."""

from __future__ import annotations

import re

import torch

OLDEST = (2, 3)  # before, torch.compile takes the hooks of a step, where we wait, from torch's optimizers
_VERSION = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def require(what: str, oldest: tuple[int, int]) -> None:
    """Raise ImportError, which says what to install, with an older version."""
    if oldest > _VERSION:
        wanted = ".".join(map(str, oldest))
        raise ImportError(
            f"{what} works with PyTorch {wanted} and later, and this is {torch.__version__}: "
            f"python -m pip install 'torch>={wanted}'"
        )


require("farandole-torch", OLDEST)
