"""`ray_logger.log(values)` hands values to the callbacks of `run`."""

from farandole_ray import log

__all__ = ["log"]
