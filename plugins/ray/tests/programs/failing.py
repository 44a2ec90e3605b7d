"""The cases of tests/support/failures as calls of RayExecutor, each with its own actors. Arguments: cases, or all."""

import contextlib
import socket
import sys
import time
from pathlib import Path

import psutil
from cluster import nodes
from failures.clusters import Cluster
from failures.judge import complaints
from farandole_ray import RayExecutor

OURS = ("farandole._cluster", "farandole.launch")


def call(work, ranks, variables):
    # On a busy machine Ray takes minutes to start an actor.
    executor = RayExecutor(RayExecutor.create_settings(100, placement_group_timeout_s=200), num_workers=ranks)
    try:
        executor.start(extra_env_vars=variables)
        return executor.run(work)
    finally:
        executor.shutdown()


def processes():
    """Of this host of the lab."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(each in word for each in OURS for word in process.cmdline()):
                yield process


def name_of_host(node):
    return f"{socket.gethostname().partition('.')[0]}-{node[:8]}"


with nodes(2, cpus=2):
    cluster, wrong = Cluster(3, call, name_of_host, processes), 0
    for number, case in enumerate(cluster.cases()):
        if case.name in sys.argv[1:] or not sys.argv[1:]:
            began = time.monotonic()
            told = cluster.run(case, Path(f"case{number}").absolute())
            found = list(complaints(case, told))
            wrong += bool(found)
            print(f"{case.name}: {time.monotonic() - began:.1f} s", *found, sep="\n    ")
            print("\n".join([told.message, told.out[-2000:], told.err[-2000:]]) if found else "", flush=True)
assert not wrong, f"{wrong} cases are wrong"
