"""A rank process of `farandole.testing.World`: runs what it is sent until the test is gone."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Client, Connection

from farandole._start import environment

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
    with contextlib.suppress(EOFError):
        while True:
            connection.send_bytes(_perform(connection.recv_bytes()))


def _connection(name: str) -> Connection:
    """`name`: the number of a descriptor, or the path of a socket, to which this process says its rank."""
    if name.isdigit():
        return Connection(int(name))
    connection = Client(name, "AF_UNIX")
    connection.send_bytes(str(environment.discover().rank).encode())
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
