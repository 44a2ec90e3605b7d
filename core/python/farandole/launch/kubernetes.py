"""The documents of `farandole k8s`: a Secret, a headless Service, an Indexed Job. Pure, but for PyYAML.

    Secret train-key       the job's key, mounted as a file into each pod
    Service train          gives the pods names: train-0.train, train-1.train, before they are ready
    Job train              completion index N is node N: farandole run --nnodes 2 --node-rank N ...

Each pod's launcher starts the ranks of its pod, and the launchers meet at pod 0 (head/rendezvous.py).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from farandole.launch.hosts import MAX_RANKS
from farandole.launch.messages import shown, table
from farandole.launch.placement import HostSlots, Placement, place
from farandole.launch.spec import SpecError

KEY_FILE = "/run/secrets/farandole/key"
_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")  # of a Service, the strictest of the three
_SECRET = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_QUANTITY = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?(?:m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_IMAGE = re.compile(r"[!-~]+")
_LABEL_BYTES = 63  # of a host's name, such as train-0
_NAME_BYTES = 253


@dataclass(frozen=True)
class PodJob:
    """A job of pods that are alike. `slots`: the ranks of each."""

    name: str
    image: str
    hosts: int
    slots: int
    command: Sequence[str]
    namespace: str | None = None
    gpus: int = 0
    cpus: str | None = None
    memory: str | None = None
    shm: str = "1Gi"  # "0": the 64 MiB of the container runtime
    secret: str | None = None  # that exists; None: ours
    port: int = 29500
    start_timeout_s: float = 600.0
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise SpecError for a value that Kubernetes would refuse."""
        longest = _LABEL_BYTES - len(f"-{self.hosts - 1}")
        if not _NAME.fullmatch(self.name) or len(self.name) > longest:
            raise SpecError(
                f"--name must be at most {longest} small letters, digits and inner hyphens, a letter first, not "
                f"{shown(self.name)}: pods are named after it."
            )
        if self.namespace is not None and not (_NAME.fullmatch(self.namespace) and len(self.namespace) <= _LABEL_BYTES):
            raise SpecError(f"--namespace must be small letters, digits and hyphens, not {shown(self.namespace)}.")
        if self.secret is not None and not (_SECRET.fullmatch(self.secret) and len(self.secret) <= _NAME_BYTES):
            raise SpecError(f"--secret must be the name of a Secret, not {shown(self.secret)}.")
        if not _IMAGE.fullmatch(self.image):
            raise SpecError(f"--image must be the name of a container's image, not {shown(self.image)}.")
        if self.hosts * self.slots > MAX_RANKS:
            ranks = self.hosts * self.slots
            raise SpecError(f"--hosts {self.hosts} with {self.slots} ranks each are {ranks} ranks, above {MAX_RANKS}.")
        for option, value in (("--cpus", self.cpus), ("--memory", self.memory), ("--shm", self.shm)):
            if value is not None and not _QUANTITY.fullmatch(value):
                raise SpecError(f"{option} must be a quantity of Kubernetes, as in 4, 500m or 8Gi, not {shown(value)}.")

    @property
    def placements(self) -> list[Placement]:
        """Return the pod of each rank."""
        return place(
            self.hosts * self.slots, [HostSlots(f"{self.name}-{pod}", self.slots) for pod in range(self.hosts)]
        )

    @property
    def secret_name(self) -> str:
        """The Secret that holds the key, in its field `key`."""
        return self.secret or f"{self.name}-key"

    @property
    def container_command(self) -> list[str]:
        """The words of each container. Kubernetes replaces $(NAME), and $$ by $."""
        return [
            *("farandole", "run", "--nnodes", str(self.hosts), "--node-rank", "$(JOB_COMPLETION_INDEX)"),
            *("--rendezvous", f"{self.name}-0.{self.name}:{self.port}", "--key-file", KEY_FILE),
            *("--nproc-per-node", str(self.slots), "--start-timeout", f"{self.start_timeout_s:g}", "--"),
            *(word.replace("$", "$$") for word in self.command),
        ]


def documents(job: PodJob, key: bytes) -> list[dict[str, Any]]:
    """Return the objects to apply, in order. `key`: the content of the Secret, unless the Secret already exists."""
    made = [_service(job), _job(job)]
    return made if job.secret else [_secret(job, key), *made]


def as_yaml(objects: Sequence[dict[str, Any]]) -> str:
    """Return the objects as documents of one file. Raises SpecError if PyYAML is missing."""
    try:
        import yaml
    except ImportError as error:
        raise SpecError("farandole k8s prints YAML, which needs PyYAML: python -m pip install pyyaml.") from error
    text: str = yaml.safe_dump_all(objects, sort_keys=False, explicit_start=True, width=1 << 16)
    return text


def preview(job: PodJob) -> str:
    """Return a text with the pod of each rank, and the command of all pods."""
    rows = [(str(each.rank), each.host, str(each.local_rank)) for each in job.placements]
    return f"{table([('rank', 'pod', 'local rank'), *rows])}\n\neach pod runs: {shlex.join(job.container_command)}"


def _metadata(job: PodJob, name: str) -> dict[str, Any]:
    return {"name": name, **({"namespace": job.namespace} if job.namespace else {})}


def _secret(job: PodJob, key: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, job.secret_name),
        "type": "Opaque",
        "immutable": True,
        "data": {"key": base64.b64encode(key).decode()},
    }


def _service(job: PodJob) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # pods look each other up while they start
            "selector": {"job-name": job.name},
        },
    }


def _job(job: PodJob) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(job, job.name),
        "spec": {
            "completionMode": "Indexed",
            "completions": job.hosts,
            "parallelism": job.hosts,
            "backoffLimit": 0,  # a pod alone cannot go on, and none can join a job that runs
            # A pod that is evicted before the job has begun is replaced. Versions before 1.35 need the status.
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "spec": {
                    "subdomain": job.name,
                    "restartPolicy": "Never",
                    "containers": [_container(job)],
                    "volumes": _volumes(job),
                }
            },
        },
    }


def _container(job: PodJob) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "node", "image": job.image, "command": job.container_command}
    if job.env:
        container["env"] = [{"name": name, "value": value.replace("$", "$$")} for name, value in job.env.items()]
    limits = {"cpu": job.cpus, "memory": job.memory, "nvidia.com/gpu": str(job.gpus) if job.gpus else None}
    if given := {name: value for name, value in limits.items() if value is not None}:
        container["resources"] = {"limits": given}
    folder = KEY_FILE.rpartition("/")[0]
    container["volumeMounts"] = [{"name": "key", "mountPath": folder, "readOnly": True}]
    if job.shm != "0":
        container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
    return container


def _volumes(job: PodJob) -> list[dict[str, Any]]:
    items = [{"key": "key", "path": KEY_FILE.rpartition("/")[2]}]
    # 0444: the container's user may be any; no other container has the volume.
    volumes: list[dict[str, Any]] = [
        {"name": "key", "secret": {"secretName": job.secret_name, "defaultMode": 0o444, "items": items}}
    ]
    if job.shm != "0":
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": job.shm}})
    return volumes
