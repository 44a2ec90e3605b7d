"""Data sets whose work is done by processes of `compute_worker`, with TensorFlow's tf.data.experimental.service."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import tensorflow as tf

import horovod.tensorflow as hvd
from horovod._environment import check_data_service
from horovod.runner.common.service.compute_service import ComputeClient
from horovod.tensorflow.data import _servers

_POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class TfDataServiceConfig:
    """What a process needs to use a data service.

    Args:
        dispatchers: how many dispatchers there are: one for all ranks, or one for each.
        workers_per_dispatcher: how many workers each has.
        dispatcher_side: who runs the dispatchers: "compute", the workers, or "training", the ranks that train.
        addresses: of the service, by interface.
        key: bytes that all processes prove.
        timeout: seconds to wait for dispatchers and workers.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: Mapping[str, Sequence[tuple[str, int]]]
    key: bytes = dataclasses.field(repr=False)
    timeout: int = 60

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """Return a new client of the service."""
        return ComputeClient(self.addresses, self.key, verbose)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values of JSON, the key among them."""
        return {**vars(self), "key": self.key.hex()}

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """Return the config of such values."""
        addresses = {name: [(host, port) for host, port in each] for name, each in config["addresses"].items()}
        return TfDataServiceConfig(**{**config, "addresses": addresses, "key": bytes.fromhex(config["key"])})

    def write(self, filename: str) -> None:
        """Write a file that only this user can read. It appears complete."""
        path = Path(filename)
        descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self.to_dict(), file)
        os.replace(name, filename)

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Return the config in a file; waits for it without end, if asked to."""
        while wait_for_file_creation and not os.path.exists(filename):
            time.sleep(_POLL_SECONDS)
        return TfDataServiceConfig.from_dict(json.loads(Path(filename).read_text()))


@contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Yield the address of this rank's dispatcher, once it has all its workers, for `service.distribute`.

    If the dispatchers are on the training side, this rank's runs until the context ends.

    Raises:
        TimeoutException: a dispatcher or a worker is missing.
    """
    check_data_service()
    client = compute_config.compute_client()
    has_own = compute_config.dispatchers > 1 or rank == 0
    dispatcher_id = rank if compute_config.dispatchers > 1 else 0
    own = _servers.dispatcher(client) if compute_config.dispatcher_side == "training" and has_own else nullcontext()
    with own as address:
        if address is not None:
            client.register_dispatcher(dispatcher_id, address)
        address = client.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
        client.wait_for_dispatcher_worker_registration(dispatcher_id, compute_config.timeout)
        yield address


def send_to_data_service(
    dataset: tf.data.Dataset,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: int | None = None,
    processing_mode: str = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> tf.data.Dataset:
    """Let the workers compute the data set up to here; also a method of `tf.data.Dataset`.

    Args:
        dataset: the data set.
        compute_config: of the data service, whose dispatchers are on the compute side.
        rank: of this process.
        size: how many ranks train; needed for `round_robin`.
        processing_mode: "distributed_epoch": the workers share the elements; "parallel_epochs": each has all.
        reuse_dataset: the ranks of one dispatcher share the elements, too, rather than having all of them each.
        round_robin: they get them in turn, at the same pace.

    Raises:
        RuntimeError: the dispatchers are on the training side.
        TimeoutException: a dispatcher or a worker is missing.
    """
    if compute_config.dispatcher_side == "training":
        raise RuntimeError("the dispatchers are on the training side: use the context tf_data_service instead")
    in_turn = reuse_dataset and round_robin
    with tf_data_service(compute_config, rank) as address:
        distribute = tf.data.experimental.service.distribute(
            processing_mode=processing_mode,
            service=address,
            job_name="job" if reuse_dataset else None,
            consumer_index=rank if in_turn else None,
            num_consumers=size if in_turn else None,
        )
        return dataset.apply(distribute)


tf.data.Dataset.send_to_data_service = send_to_data_service


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Run this rank's worker, and the dispatcher if it is its turn, until the service ends.

    Raises:
        TimeoutException: a dispatcher is missing.
    """
    check_data_service()
    hvd.init()
    rank = hvd.rank()
    client = compute_config.compute_client()
    dispatcher_id, place = divmod(rank, compute_config.workers_per_dispatcher)
    has_own = compute_config.dispatcher_side == "compute" and place == 0
    with _servers.dispatcher(client) if has_own else nullcontext() as address:
        if address is not None:
            client.register_dispatcher(dispatcher_id, address)
        address = client.wait_for_dispatcher_registration(dispatcher_id, compute_config.timeout)
        with _servers.worker(client, address, compute_config.timeout):
            client.register_worker_for_dispatcher(dispatcher_id, rank)
            client.wait_for_shutdown()
