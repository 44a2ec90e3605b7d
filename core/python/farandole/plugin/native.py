"""Interface for a plugin whose native part calls the core itself (farandole.h), or that begins operations later."""

from farandole._api.calls import check_types
from farandole._api.earlier import await_earlier, before_unnamed
from farandole._api.errors import TYPES_BY_KIND as ERROR_TYPES
from farandole._api.process_sets import ProcessSets
from farandole._api.refusals import no_calls_while
from farandole._runtime.native import core as _core
from farandole._runtime.uncaught import translate_errors
from farandole._start.communicators import Communicator
from farandole._start.environment import environment_default

__all__ = [
    "Communicator",
    "ERROR_TYPES",
    "ProcessSets",
    "api_address",
    "await_earlier",
    "before_unnamed",
    "call_site",
    "check_types",
    "environment_default",
    "lost_rank",
    "may_take_device_memory",
    "no_calls_while",
    "takes_device_memory",
    "translate_errors",
]


def api_address() -> int:
    """Return the address of farandole.h's function table, for a plugin's native part. Valid until the process ends."""
    return _core.api_address


def takes_device_memory() -> bool:
    """Return whether a backend of this world performs operations directly on device memory.

    The core stages all other operations in pinned host memory. False before `init`, and in a world of one.
    """
    return _core.takes_device_memory()


def may_take_device_memory() -> bool:
    """Return whether the settings list a backend that works directly on device memory. May precede `init`."""
    return _core.settings_take_device_memory()


def lost_rank() -> tuple[int, str] | None:
    """Return the rank whose loss ended this world, and how it was lost; None if there is no such rank."""
    return _core.lost_rank()


def call_site() -> str:
    """Return the line of the user's program that made the call, such as "train.py:12", for messages."""
    return _core.call_site(1)
