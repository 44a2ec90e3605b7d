"""The module `sparkdl` of Databricks' runtime: programs written for HorovodRunner run on farandole_spark."""

from horovod._environment import needing as _needing

with _needing("farandole-spark"):
    from farandole_spark import HorovodRunner

__all__ = ["HorovodRunner"]
