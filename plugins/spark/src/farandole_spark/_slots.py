"""Decides whether a job fits into a cluster, from counts of its slots. Pure."""

from __future__ import annotations

from dataclasses import dataclass

YOUNG_SECONDS = 5.0  # that a job waits for executors of a cluster that has just started
SETTLE_SECONDS = 5.0  # that a stage of an elastic job waits for more slots than it needs


@dataclass(frozen=True)
class Slots:
    """How many tasks a cluster can run at once; `total` is None if Spark does not tell."""

    total: int | None
    free: int | None
    is_young: bool = False  # it has just started, so more executors may come


def too_few(wanted: int, slots: Slots, asked_for_s: float) -> str:
    """Return why the cluster is too small, or "" if it is not, or may still grow."""
    if slots.total is None or wanted <= slots.total or (slots.is_young and asked_for_s < YOUNG_SECONDS):
        return ""
    has = f"{slots.total} slot{'' if slots.total == 1 else 's'}"
    return (
        f"num_proc={wanted} asks for {wanted} slots, and the cluster has {has}; lower num_proc, or add executors or "
        "cores (a slot has spark.task.cpus cores)."
    )


def waiting(wanted: int, slots: Slots) -> str:
    """Return which slots the job lacks, or "" if it can start."""
    if slots.total is not None and wanted > slots.total:
        return f"waiting for {wanted} slots, the cluster has {slots.total}"
    if slots.free is None or wanted <= slots.free:
        return ""
    return f"waiting for {wanted} slots, {slots.free} free"


def fitting(least: int | None, most: int | None, slots: Slots, waited_s: float) -> int:
    """Return the number of ranks of an elastic job's next stage, or 0 if it must wait."""
    free = slots.total if slots.free is None else slots.free
    if free is None:  # Spark does not tell, and the stage itself waits
        return most or 0
    ranks = min(free, most or free)
    is_enough = ranks > 0 and ranks >= (least or 1)
    return ranks if is_enough and (ranks == most or waited_s >= SETTLE_SECONDS) else 0
