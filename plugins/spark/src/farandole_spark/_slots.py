"""Decides whether a job fits into a cluster, from counts of its slots. Pure."""

from __future__ import annotations

from dataclasses import dataclass

YOUNG_SECONDS = 5.0  # so long a job waits for executors of a cluster that has just started


@dataclass(frozen=True)
class Slots:
    """The tasks that a cluster can run at the same time; `total` is None where Spark does not tell."""

    total: int | None
    free: int | None
    is_young: bool = False  # it has just started: executors may be on their way


def too_few(wanted: int, slots: Slots, asked_for_s: float) -> str:
    """The sentence about a cluster that is too small; "" where it is not, or may still grow."""
    if slots.total is None or wanted <= slots.total or (slots.is_young and asked_for_s < YOUNG_SECONDS):
        return ""
    has = f"{slots.total} slot{'' if slots.total == 1 else 's'}"
    return (
        f"num_proc={wanted} asks for {wanted} slots, and the cluster has {has}; lower num_proc, or add executors or "
        "cores (a slot has spark.task.cpus cores)."
    )


def waiting(wanted: int, slots: Slots) -> str:
    """Names the slots that the job lacks; "" where it can start."""
    if slots.total is not None and wanted > slots.total:
        return f"waiting for {wanted} slots, the cluster has {slots.total}"
    if slots.free is None or wanted <= slots.free:
        return ""
    return f"waiting for {wanted} slots, {slots.free} free"
