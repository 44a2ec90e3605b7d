"""The result of `RayExecutor.create_settings`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Times, and ways between nodes."""

    timeout_s: float = 30.0  # that the ranks have to meet
    placement_group_timeout_s: float = 100.0  # to wait for places that others use
    nics: tuple[str, ...] = ()  # network interfaces between nodes; () for any
    autoscales: bool = False  # nodes come when they are asked for: wait for more than the cluster has
    timestamp: bool = False  # each line of a rank begins with the time
    verbose: bool = False

    @property
    def leaves(self) -> dict[str, Any]:
        """The settings as leaves of the job's spec."""
        return {
            "start_timeout": self.timeout_s,
            "verbose": self.verbose,
            "network_interfaces": ",".join(self.nics) or None,
            "timestamp": self.timestamp,
        }
