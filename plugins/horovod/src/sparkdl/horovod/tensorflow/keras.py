"""The callback for Keras."""

from farandole_spark.keras import LogCallback

__all__ = ["LogCallback"]
