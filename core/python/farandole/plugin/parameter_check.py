"""The warning if ranks start training from different parameters, and the trigger for another comparison."""

from farandole._start.world import join_count, note_join, world_number
from farandole._training.parameter_check import (
    COMPARISON,
    NOT_COMPARED,
    awaits_broadcast,
    checks_parameters,
    checksum,
    compare_parameters,
    row_of,
    sums_by_rank,
    warn_about_differences,
)

__all__ = [
    "COMPARISON",
    "NOT_COMPARED",
    "awaits_broadcast",
    "checks_parameters",
    "checksum",
    "compare_parameters",
    "join_count",
    "note_join",
    "row_of",
    "sums_by_rank",
    "warn_about_differences",
    "world_number",
]
