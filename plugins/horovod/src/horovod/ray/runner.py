"""The executor, where programs import it from."""

from horovod.ray import RayExecutor

__all__ = ["RayExecutor"]
