"""TensorFlow's dispatchers and workers, which stop when their context ends and admit the hosts of clients alone."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tensorflow as tf

from horovod.runner.common.service.compute_service import ComputeClient
from horovod.tensorflow.data import _packet_filter

_HEARTBEAT_MS = 1000
_service = tf.data.experimental.service


@contextmanager
def dispatcher(client: ComputeClient) -> Iterator[str]:
    """A dispatcher's address, such as "grpc://10.0.0.1:5050"."""
    with _guarded(lambda port: _service.DispatchServer(_service.DispatcherConfig(port=port)), client) as port:
        yield f"grpc://{client.host}:{port}"


@contextmanager
def worker(client: ComputeClient, dispatcher_address: str, timeout_s: float) -> Iterator[None]:
    """A worker of the dispatcher at this address, which must be there within the timeout."""

    def start(port: int) -> object:
        return _service.WorkerServer(
            _service.WorkerConfig(
                dispatcher_address=dispatcher_address.partition("://")[2],
                worker_address=f"{client.host}:{port}",
                port=port,
                heartbeat_interval_ms=_HEARTBEAT_MS,
                dispatcher_timeout_ms=round(timeout_s * 1000),
            )
        )

    with _guarded(start, client):
        yield


@contextmanager
def _guarded(start: Callable[[int], object], client: ComputeClient) -> Iterator[int]:
    """The port of a new server. It has no public method to stop, so nothing else may keep the object."""
    with _packet_filter.held_port() as port:
        earlier = _packet_filter.listeners()
        server = start(port)
        ports = {inode: port for inode, port in _packet_filter.listeners().items() if inode not in earlier}
        if {*ports.values()} != {port}:
            raise RuntimeError(f"TensorFlow's server does not listen at port {port}, so others could connect to it")
        _packet_filter.admit(ports, _packet_filter.LOOPBACK)
    following = client.follow(lambda hosts: _packet_filter.admit(ports, [*_packet_filter.LOOPBACK, *hosts]))
    try:
        yield port
    finally:
        with contextlib.suppress(OSError):  # the service has ended
            following.shutdown(socket.SHUT_RDWR)
        del server
