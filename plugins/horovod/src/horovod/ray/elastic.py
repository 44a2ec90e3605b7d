"""Elastic jobs, where programs import them from."""

from horovod.ray import ElasticRayExecutor, RayHostDiscovery, TestDiscovery

__all__ = ["ElasticRayExecutor", "RayHostDiscovery", "TestDiscovery"]
