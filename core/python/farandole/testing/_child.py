"""A rank process of `farandole.testing.World`: runs what it is sent until the test is gone."""

from __future__ import annotations

import ctypes
import faulthandler
import pickle
import signal
import socket
import sys
import traceback

from farandole._start import environment
from farandole.testing import _wire

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve the socket that the first argument names; the second says whether to call init()."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    connection = _connection(sys.argv[1])
    if sys.argv[2] == "1":
        import farandole

        farandole.init()
    while (request := _wire.receive(connection)) is not None:
        _wire.send(connection, _perform(request))


def _connection(name: str) -> socket.socket:
    """`name`: the number of a descriptor, or the path of a socket, to which this process says its rank."""
    if name.isdigit():
        return socket.socket(fileno=int(name))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(name)
    _wire.send(connection, str(environment.discover().rank).encode())
    return connection


def _perform(request: bytes) -> bytes:
    from farandole._runtime import pickling

    try:
        function, args = pickle.loads(request)
        return bytes(pickling.dumps((True, function(*args))))
    except Exception:
        return pickle.dumps((False, traceback.format_exc()))


if __name__ == "__main__":
    main()
