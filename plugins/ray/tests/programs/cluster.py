"""A Ray cluster of two nodes on one host of a lab, for programs of tests: `with nodes(2) as cluster`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
from ray.cluster_utils import Cluster

_OPTIONS = {"include_dashboard": False, "object_store_memory": 100 << 20}


@contextmanager
def nodes(count: int, cpus: int = 1, config: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """A cluster to which this process is connected; the first node is the head. `config`: settings of Ray's own."""
    system = {"_system_config": dict(config)} if config else {}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, **_OPTIONS, **system})
    try:
        for _ in range(count - 1):
            add(cluster, cpus)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        sys.stdout.flush()


def add(cluster: Any, cpus: int = 1) -> Any:
    """One node more."""
    return cluster.add_node(num_cpus=cpus, object_store_memory=_OPTIONS["object_store_memory"])


def of_ours() -> list[bytes]:
    """The command lines of ranks, agents and launchers of this host of the lab."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes()
            if b"farandole._cluster.rank" in words or b"farandole.launch" in words:
                found.append(words)
    return found
