"""Names for functions that HorovodRunner calls."""

from farandole_spark import log_to_driver

__all__ = ["log_to_driver"]
