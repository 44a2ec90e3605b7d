"""Elastic training, which Horovod does not have for MXNet; from farandole_mxnet.elastic."""

from farandole_mxnet.elastic import *  # noqa: F403
