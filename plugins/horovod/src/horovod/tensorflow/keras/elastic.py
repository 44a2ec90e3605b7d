"""Elastic training, from farandole_tensorflow.keras."""

from farandole_tensorflow.keras.elastic import *  # noqa: F403
