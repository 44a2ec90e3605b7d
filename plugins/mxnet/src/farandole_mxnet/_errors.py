"""Our errors as MXNet raises them: each is the class of farandole, and an MXNetError.

MXNet carries the text of a failed operation to whoever reads one of its arrays, and raises the class that is registered
for the first word of the text; the native part begins it with `farandole.` and the class.
"""

from __future__ import annotations

from typing import Any

import farandole
from mxnet.base import MXNetError, register_error

_PREFIX = "farandole."
_reported = False  # whether an error of ours has been raised


def _registered(name: str, base: type[BaseException]) -> type[Exception]:
    def init(self: Any, text: str) -> None:
        global _reported
        _reported = True
        base.__init__(self, text.rpartition(f"{_PREFIX}{name}: ")[2])

    body = {"__init__": init, "__module__": "farandole", "__doc__": base.__doc__}
    made: type[Exception] = type(name, (base, MXNetError), body)
    register_error(f"{_PREFIX}{name}", made)
    return made


_UNKNOWN = _registered("FarandoleError", farandole.FarandoleError)
_BY_CODE = {
    1: _registered("ArgumentError", farandole.ArgumentError),
    2: _registered("MismatchError", farandole.MismatchError),
    3: _registered("PeerLostError", farandole.PeerLostError),
    4: _registered("DeadlineError", farandole.DeadlineError),
    5: _registered("NotInitializedError", farandole.NotInitializedError),
}


def error_of(code: int, text: str) -> Exception:
    """The exception for a code of farandole.h."""
    return _BY_CODE.get(code, _UNKNOWN)(text)


def nobody_was_told() -> bool:
    """Return whether no error of ours has been raised so far, so that the program cannot have read any."""
    return not _reported
