"""Elastic training, from farandole.keras."""

from farandole.keras.elastic import *  # noqa: F403
