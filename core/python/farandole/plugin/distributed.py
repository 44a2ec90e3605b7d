"""Interface for the framework's own library of collectives, such as torch.distributed, and for its launcher."""

from farandole._api.collectives import carried_allreduce
from farandole._api.messages import recv_async, send_async
from farandole._api.own_sets import add_own_process_set, remove_own_process_set
from farandole._api.waiting import limit_waits
from farandole._start.bootstrap import Exchange, register_exchange
from farandole._start.connection import FAILURES as CONNECTION_FAILURES
from farandole._start.connection import Acceptor, connect, hear, hear_bytes, say
from farandole._start.environment import GIVEN, TORCHRUN, silence_timeout_s
from farandole._start.frames import Message
from farandole._start.world import connection_key, init_as, own_address

__all__ = [
    "Acceptor",
    "CONNECTION_FAILURES",
    "Exchange",
    "GIVEN",
    "Message",
    "TORCHRUN",
    "add_own_process_set",
    "carried_allreduce",
    "connect",
    "connection_key",
    "hear",
    "hear_bytes",
    "init_as",
    "limit_waits",
    "own_address",
    "recv_async",
    "register_exchange",
    "remove_own_process_set",
    "say",
    "send_async",
    "silence_timeout_s",
]
