"""A back end for Ray Train: its workers are the ranks.

Ray Train starts its workers, and starts all anew after a failure or where their number changes; each time they get a
new key and a new place to meet.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import ray
from ray.train.backend import Backend, BackendConfig

from farandole_ray import _environment
from farandole_ray._request import variables

_KEY_BYTES = 32
_held: list[Any] = []  # of a worker: the key's memory, and the port of rank 0


@dataclass
class FarandoleConfig(BackendConfig):  # type: ignore[misc]  # Ray is not read
    """`DataParallelTrainer(train, backend_config=FarandoleConfig(), scaling_config=...)`: workers are ranks.

    In the training function `farandole_torch.init()`, or that of another plugin, joins them; `ray.train.report`,
    checkpoints and `ray.train.get_dataset_shard` work as ever. A worker sees the GPUs of all workers of its node, and
    takes number `local_rank()`.

    Args:
        timeout_s: seconds that `init()` waits for the other workers.
    """

    timeout_s: float = 120.0
    backend: ClassVar[str] = "farandole"  # TorchTrainer looks whether its torch_config has one

    @property
    def backend_cls(self) -> type[Backend]:
        """See BackendConfig."""
        return _FarandoleBackend

    def to_dict(self) -> dict[str, Any]:
        """See BackendConfig."""
        return asdict(self)


class _FarandoleBackend(Backend):  # type: ignore[misc]
    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        """Tell each worker its place, before Ray Train starts the functions."""
        assert isinstance(backend_config, FarandoleConfig)
        found = worker_group.execute(_where)
        port = worker_group.execute_single(0, _reserve, found[0][1])
        key, store = secrets.token_hex(_KEY_BYTES), f"tcp:{_bracketed(found[0][1])}:{port}"
        settings = {"FARANDOLE_STORE": store, "FARANDOLE_START_TIMEOUT": f"{backend_config.timeout_s:g}"}
        nodes = [node for node, _ in found]
        calls = [
            worker_group.execute_single_async(
                rank, _tell, {**settings, **variables(rank, nodes), "FARANDOLE_ADDRESS": _bracketed(address)}, key
            )
            for rank, (_, address) in enumerate(found)
        ]
        ray.get(calls)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


# In the workers


def _where() -> tuple[str, str]:
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()


def _reserve(address: str) -> int:
    """A port that nobody else takes until init() listens there: bound and not listening, as this process goes on."""
    held = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port


def _tell(place: dict[str, str], key: str) -> None:
    memory = os.memfd_create("farandole-key", os.MFD_CLOEXEC)
    os.fchmod(memory, 0o400)
    with open(memory, "wb", closefd=False) as file:
        file.write(bytes.fromhex(key))
    _held.append(memory)
    _environment.update({**place, "FARANDOLE_KEY_FILE": f"/proc/self/fd/{memory}"})
