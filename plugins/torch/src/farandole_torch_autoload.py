"""PyTorch calls `autoload` at its own import, so that `init_process_group("farandole")` needs no import of ours.

It looks for the entry point "torch.backends" from version 2.5 on, unless TORCH_DEVICE_BACKEND_AUTOLOAD is 0. Nothing of
farandole_torch is imported before a group is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["autoload", "register"]


def autoload() -> None:
    """`register`, where this torch has what that needs: `import torch` must not fail because of Farandole."""
    with contextlib.suppress(Exception):
        register()


def register() -> None:
    """Make the backend "farandole" and init_method="farandole://" known to torch.distributed, once."""
    import torch.distributed as dist

    if not hasattr(dist.Backend, "FARANDOLE"):
        dist.Backend.register_backend("farandole", _create, extended_api=True, devices=["cpu", "cuda"])
        dist.register_rendezvous_handler("farandole", _rendezvous)


def _create(options: Any, unused: Any) -> Any:
    from farandole_torch.distributed import create

    return create(options, unused)


def _rendezvous(url: str, *args: Any, **others: Any) -> Iterator[tuple[Any, int, int]]:
    from farandole_torch.distributed import rendezvous

    return rendezvous(url, *args, **others)
