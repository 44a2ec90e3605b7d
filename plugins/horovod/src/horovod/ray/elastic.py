"""Elastic jobs, where programs import them from."""

from horovod.ray import ElasticRayExecutor, RayHostDiscovery

__all__ = ["ElasticRayExecutor", "RayHostDiscovery"]
