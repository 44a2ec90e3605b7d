"""Elastic training, from farandole_torch.elastic."""

from farandole_torch.elastic import *  # noqa: F403

from horovod.torch.elastic import sampler, state
