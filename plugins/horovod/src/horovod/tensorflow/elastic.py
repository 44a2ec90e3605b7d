"""Elastic training, from farandole_tensorflow.elastic."""

from farandole_tensorflow.elastic import *  # noqa: F403
