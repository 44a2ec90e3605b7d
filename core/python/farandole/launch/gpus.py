"""The GPUs of a host, and the meaning of CUDA_VISIBLE_DEVICES for its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path


def sharing(base: Mapping[str, str], ranks: int) -> str:
    """Return a warning if this host's `ranks` ranks see fewer GPUs than there are ranks; "" otherwise.

    All ranks inherit the same list, in which each counts from 0.
    """
    listed = base.get("CUDA_VISIBLE_DEVICES", "").strip()
    visible = _visible(listed)
    if not visible or len(visible) >= ranks:  # none at all is a choice
        return ""
    gpus = "one GPU" if len(visible) == 1 else f"{len(visible)} GPUs"
    return (
        f"CUDA_VISIBLE_DEVICES={listed} shows {gpus} to all {ranks} ranks on this host, so some share one, and "
        f"torch.cuda.set_device(hvd.local_rank()) fails on those from local rank {len(visible)} on. List {ranks} GPUs, "
        "or leave it unset and let each rank choose the one of its local_rank()."
    )


def count(base: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """Return the number of GPUs that the ranks of this host would see."""
    listed = base.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return len(_visible(listed))
    return sum(1 for each in devices.glob("nvidia[0-9]*") if each.name.removeprefix("nvidia").isdecimal())


def _visible(listed: str) -> list[str]:
    """Return the entries before the first negative one, at which CUDA stops."""
    entries = [each.strip() for each in listed.split(",") if each.strip()]
    return list(takewhile(lambda each: not each.startswith("-"), entries))
