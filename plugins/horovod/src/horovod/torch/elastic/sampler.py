"""The sampler of elastic training, from farandole_torch.elastic."""

from farandole_torch.elastic import ElasticSampler
