"""What is used of Ray without a promise, so that a new version that lacks it costs a notice and no job."""

from __future__ import annotations

from typing import Any


def draining() -> set[str]:
    """The ids of nodes that Ray has been told to drain; empty where this version does not tell."""
    try:
        from ray._private.state import state

        found: dict[str, Any] = state.get_draining_nodes()
    except Exception:
        return set()
    return set(found)
