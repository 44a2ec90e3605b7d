"""The uses of Ray that Ray does not promise. A version without them costs the notice, and no job.

Checked on Ray 2.60.0;

| name | what for | where |
|---|---|---|
| `ray._private.state.state.get_draining_nodes` | nodes that will go away | here |
"""

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
