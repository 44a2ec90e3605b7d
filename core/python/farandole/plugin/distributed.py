"""For the framework's own library of collectives, such as torch.distributed, and for its launcher."""

from farandole._api.collectives import carried_allreduce
from farandole._api.process_sets import add_own_process_set
from farandole._start.bootstrap import Exchange, register_exchange
from farandole._start.environment import TORCHRUN
from farandole._start.world import init_as, own_address

__all__ = [
    "Exchange",
    "TORCHRUN",
    "add_own_process_set",
    "carried_allreduce",
    "init_as",
    "own_address",
    "register_exchange",
]
