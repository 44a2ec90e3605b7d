"""The meaning of CUDA_VISIBLE_DEVICES for the ranks of a host."""

from __future__ import annotations

from collections.abc import Mapping


def sharing(base: Mapping[str, str], ranks: int) -> str:
    """A sentence for who shows `ranks` ranks of this host fewer GPUs than they are; "" where there is nothing to say.

    All ranks inherit the same list, in which each counts from 0.
    """
    listed = base.get("CUDA_VISIBLE_DEVICES", "").strip()
    visible = [each for each in listed.split(",") if each.strip()]
    if not visible or visible[0].strip().startswith("-") or len(visible) >= ranks:  # none at all is a choice
        return ""
    gpus = "one GPU" if len(visible) == 1 else f"{len(visible)} GPUs"
    return (
        f"CUDA_VISIBLE_DEVICES={listed} shows {gpus} to all {ranks} ranks on this host, so some share one, and "
        f"torch.cuda.set_device(hvd.local_rank()) fails on those from local rank {len(visible)} on. List {ranks} GPUs, "
        "or leave it unset and let each rank choose the one of its local_rank()."
    )
