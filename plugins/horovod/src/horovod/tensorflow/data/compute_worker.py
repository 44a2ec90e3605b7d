"""The program whose ranks work on data: horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker FILE."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from pathlib import Path

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Run a worker on this rank until a client of the service ends it; rank 0 writes the config and has the service.

    Raises:
        ValueError: the dispatchers cannot have the same number of workers.
        TimeoutException: a dispatcher is missing.
    """
    hvd.init()
    if hvd.rank() == 0:
        Path(configfile).unlink(missing_ok=True)  # of an earlier service
    if dispatchers <= 0 or hvd.size() % dispatchers:
        raise ValueError(f"{hvd.size()} workers cannot be shared out evenly to {dispatchers} dispatchers")
    workers = hvd.size() // dispatchers
    service = None
    try:
        config = None
        if hvd.rank() == 0:
            key = secret.make_secret_key()
            service = ComputeService(dispatchers, workers, key, _interfaces())
            config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, service.addresses(), key, timeout)
        config = _by_one_address(hvd.broadcast_object(config, name="TfDataServiceConfig"))
        if hvd.rank() == 0:
            config.write(configfile)
        compute_worker_fn(config)
    finally:
        if service is not None:
            _remove(configfile, config)
            service.shutdown()


def _remove(configfile: str, config: TfDataServiceConfig | None) -> None:
    """Remove the file, unless another service has written its own meanwhile."""
    with contextlib.suppress(OSError, ValueError):
        if TfDataServiceConfig.read(configfile) == config:
            Path(configfile).unlink()


def _interfaces() -> list[str] | None:
    """Where to listen: only a job with several hosts needs more than 127.0.0.1."""
    import psutil

    return ["lo"] if hvd.local_size() == hvd.size() else [name for name in psutil.net_if_addrs() if name != "lo"]


def _by_one_address(config: TfDataServiceConfig) -> TfDataServiceConfig:
    """The config with the address that works on another host, which the last rank tries out."""
    found = config.compute_client().endpoint if hvd.rank() == hvd.size() - 1 else None
    found = hvd.broadcast_object(found, root_rank=hvd.size() - 1, name="TfDataServiceAddress")
    (name,) = [name for name, addresses in config.addresses.items() if found in addresses]
    return dataclasses.replace(config, addresses={name: [found]})


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Work on data for processes that train.")
    parser.add_argument("configfile", help="the file to write, which those who train read; it holds a key")
    parser.add_argument("--dispatchers", default=1, type=int, help="how many dispatchers; divides the number of ranks")
    parser.add_argument(
        "--dispatcher-side", default="compute", choices=["compute", "training"], help="who runs the dispatchers"
    )
    parser.add_argument("--timeout", default=60, type=int, help="seconds to wait for dispatchers and workers")
    return parser.parse_args()


if __name__ == "__main__":
    main(**vars(_parse()))
