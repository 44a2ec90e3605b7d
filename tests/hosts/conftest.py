"""Jobs on the hosts of a lab, started as users start them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from host_jobs import Job
from lab import Host, Lab, lab_fixture  # noqa: F401  (a fixture)


@pytest.fixture
def launch(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """launch(hosts, "-H", "h0:1,h1:1", "train.py") runs `farandole run ...` on the first of the hosts."""
    jobs: list[Job] = []

    def start(hosts: Sequence[Host], *arguments: object, **variables: str) -> Job:
        variables = {"FARANDOLE_SSH": " ".join(lab.ssh_command), **variables}
        command = ["env", *(f"{name}={value}" for name, value in variables.items())]
        command += [sys.executable, "-m", "farandole.launch", "run", *map(str, arguments)]
        jobs.append(Job(hosts[0].start(command, cwd=tmp_path, stdin=-3, stdout=-1, stderr=-1, text=True)))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.communicate()
