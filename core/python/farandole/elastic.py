"""Elastic training for programs without a framework: a rank is lost or leaves, and the others go on.

    import farandole.numpy as hvd
    from farandole import elastic

    @elastic.run
    def train(state):
        while state.step < 1000:
            state.weights -= 0.1 * hvd.allreduce(gradient(state.weights), name="gradient")
            state.step += 1
            state.commit()

    hvd.init()
    train(elastic.ObjectState(step=0, weights=np.zeros(1000)))

Started by `farandole run -np 4 --min-np 2`. The plugins have an `elastic` of their own, for models and optimizers.
"""

from farandole._api.errors import HorovodInternalError, HostsUpdatedInterrupt
from farandole._elastic.loop import run
from farandole._elastic.state import ObjectState, State

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "run"]
