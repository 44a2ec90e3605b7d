"""The discovery of nodes, where programs import it from."""

from horovod.ray import RayHostDiscovery

__all__ = ["RayHostDiscovery"]
