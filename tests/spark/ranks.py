"""A module that lies beside no executor's Python: it travels by value."""

from __future__ import annotations

OFFSET = 100


def shifted(value: int) -> int:
    """Uses a global variable of this module."""
    return value + OFFSET
