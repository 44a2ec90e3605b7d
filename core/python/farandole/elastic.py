"""Elastic training without a framework, for example with numpy: if a rank is lost or leaves, the others continue.

    import farandole.elastic

    @farandole.elastic.run
    def train(state): ...

    train(farandole.elastic.ObjectState(step=0, weights=weights))

Each plugin has a module `elastic` of its own, with the states of its framework.
"""

from farandole._elastic.batches import Batches
from farandole._elastic.loop import run
from farandole._elastic.sampler import ElasticSampler
from farandole._elastic.state import ObjectState, State

__all__ = ["Batches", "ElasticSampler", "ObjectState", "State", "run"]
