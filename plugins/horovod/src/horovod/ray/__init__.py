"""Ranks on the nodes of a Ray cluster, by Horovod's names."""

try:
    from farandole_ray.horovod import ElasticRayExecutor, RayExecutor, RayHostDiscovery, TestDiscovery
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("farandole_ray", "ray"):
        raise
    raise ImportError(
        f"horovod.ray needs {error.name}: python -m pip install 'farandole-horovod[ray]'", name=error.name
    ) from None

__all__ = ["ElasticRayExecutor", "RayExecutor", "RayHostDiscovery", "TestDiscovery"]
