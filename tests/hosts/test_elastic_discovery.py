"""The launcher follows the cluster: hosts join a job that runs, are taken off the list, are lost and come back.

FARANDOLE_LONG=1: a host that was lost comes back; lists that lie; a cluster that changes all the time.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from host_jobs import Job, await_nothing, processes
from lab import Host, Lab

LONG = bool(os.environ.get("FARANDOLE_LONG"))
pytestmark = pytest.mark.timeout(120)

# Steps until there is a file "stop", or the number of steps of the first argument is done.
PROGRAM = """
import os, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic
hvd.init()

@elastic.run
def train(state):
    print(f"world of {hvd.size()} from {state.step}", flush=True)
    if hvd.rank() == 0:
        open("size", "w").write(str(hvd.size()))
    while True:
        stops = hvd.allreduce(np.array([os.path.exists("stop"), 1.0]), op=hvd.Sum, name="step")
        assert stops[1] == hvd.size()
        state.step += 1
        state.commit()
        state.sizes.add(hvd.size())
        if stops[0]:
            return
        time.sleep(0.005)

state = elastic.ObjectState(step=0, sizes=set())
train(state)
print(f"ended {hvd.rank()} of {hvd.size()}", flush=True)
"""


class Cluster:
    """Hosts of a lab, of which a job knows those that a script prints."""

    def __init__(self, hosts: Sequence[Host], folder: Path, launch: Callable[..., Job]) -> None:
        self.hosts, self._folder, self._launch = hosts, folder, launch
        (folder / "train.py").write_text(PROGRAM)

    def lists(self, *lines: str) -> None:
        """The script prints these from now on."""
        (self._folder / "new").write_text("".join(f"{line}\n" for line in lines))
        (self._folder / "new").rename(self._folder / "hosts")

    def run(self, *options: object) -> Job:
        return self._launch(self.hosts, "--host-discovery-script", "cat hosts", *options, "train.py")

    def size(self) -> int:
        """Of the world that the job is in."""
        return int((self._folder / "size").read_text() or 0)

    def stop(self, job: Job) -> tuple[str, str]:
        """Ends the job, and returns its stdout and stderr."""
        (self._folder / "stop").write_text("")
        code, out, err = job.finish()
        assert code == 0, err
        await_nothing(self.hosts, 40.0)
        return out, err


@pytest.fixture
def cluster(lab: Lab, launch: Callable, tmp_path: Path) -> Callable[[int], Cluster]:
    """cluster(2) has two hosts."""
    return lambda count: Cluster(lab.hosts(count), tmp_path, launch)


def ranks(host: Host) -> list[str]:
    return [line for line in processes(host, "train.py") if "farandole.launch" not in line]


def await_no_agent(host: Host) -> None:
    until = time.monotonic() + 15.0
    while left := processes(host, "python", "launch.agent"):
        assert time.monotonic() < until, left
        time.sleep(0.1)


def test_a_host_joins_and_is_taken_off_the_list(cluster: Callable[[int], Cluster]) -> None:
    """Its ranks leave at a commit, so no step is done again; hosts that lie are told of, and stop nobody."""
    lab = cluster(2)
    lab.lists("h0:1", "elsewhere.invalid:2")
    job = lab.run("--min-np", 1, "--max-np", 3)
    job.await_lines(1, "world of 1 from 0")
    lab.lists("h0", "nowhere.invalid:3", "h1:2")
    job.await_lines(3, "world of 3")
    lab.lists("h0:1", "nowhere.invalid:3")
    job.await_lines(1, "world of 1")
    await_no_agent(lab.hosts[1])
    out, err = lab.stop(job)
    assert out.count("ended 0 of 1") == 1, out
    assert err.count("leaves after SIGTERM") == 2 and err.count("h1 is no longer among the hosts") == 1, err
    assert err.count("elsewhere.invalid") == 1 and "or /etc/hosts; the job starts without it" in err, err
    assert "was lost" not in err and err.count("nowhere.invalid is no name that this machine knows") == 1, err
    assert re.search(r"h1 \([\d.]+\) has joined the job's hosts", err), err


if LONG:

    @pytest.mark.parametrize("seed", range(3))
    def test_a_cluster_that_changes_all_the_time(cluster: Callable[[int], Cluster], seed: int) -> None:
        """Random lists, some of which lie, lost hosts, and hosts that take themselves away; then all is well again."""
        found, chance = cluster(4), random.Random(seed)
        found.lists("h0:1")
        job = found.run("--min-np", 1, "--max-np", 6, "--blacklist-cooldown-range", 0.5, 4)
        job.await_lines(1, "world of 1 from 0")
        until = time.monotonic() + 40.0
        while time.monotonic() < until:
            listed = [f"h{number}:{chance.randint(1, 3)}" for number in range(1, 4) if chance.random() < 0.7]
            lies = chance.choice([[], ["h1.invalid:2"], [f"{found.hosts[2].address}:1"], ["-x"]])
            found.lists(f"h0:{chance.randint(1, 2)}", *listed, *lies)
            time.sleep(chance.uniform(0.2, 3.0))
            victim = found.hosts[chance.randint(1, 3)]
            if chance.random() < 0.3:
                victim.blackhole()
                time.sleep(chance.uniform(0.1, 8.0))
                victim.heal()
            elif chance.random() < 0.3 and (agents := processes(victim, "python", "launch.agent")):
                victim.run(["kill", chance.choice(["-TERM", "-KILL"]), agents[0].split()[0]])
        found.lists("h0:1", "h1:1", "h2:1", "h3:1")
        until = time.monotonic() + 60.0
        while found.size() != 4 or [len(ranks(host)) for host in found.hosts] != [1, 1, 1, 1]:
            if time.monotonic() > until or job.process.poll() is not None:
                alive = [line for host in found.hosts for line in processes(host, "python")]
                pytest.fail("\n".join([*alive, *job.kill()]))
            time.sleep(0.5)
        out, err = found.stop(job)
        assert not re.search(r"taken in: \w+Error", err), err  # a mistake of an agent
        assert sorted(re.findall(r"ended (\d of \d)", out)) == [f"{rank} of 4" for rank in range(4)], err


if LONG:

    def test_two_names_of_a_machine_and_a_closed_network_stop_nobody(cluster: Callable[[int], Cluster]) -> None:
        """One sentence each; the host that cannot connect is taken in once it can."""
        found = cluster(3)
        found.lists("h0:1")
        job = found.run("--min-np", 1, "--max-np", 8)
        job.await_lines(1, "world of 1 from 0")
        for address in (found.hosts[1].address, found.hosts[1].address6):
            found.hosts[2].run(["ip", "route", "add", "unreachable", address])
        found.lists("h0:1", "h1:1")
        job.await_lines(2, "world of 2")
        found.lists("h0:1", "h1:1", f"{found.hosts[1].address}:1", "h2:1")
        told = job.await_error("h2 cannot connect to h1")
        found.hosts[2].run(["ip", "route", "del", "unreachable", found.hosts[1].address])
        job.await_lines(3, "world of 3")
        err = told + found.stop(job)[1]
        assert err.count("h1 and 10.77.0.11 are one machine; name it once") == 1, err
        assert err.count("h2 cannot connect to h1 (10.77.0.11); look for a firewall") == 1, err
        assert "leaves" not in err and "was lost" not in err, err


if LONG:

    def test_a_host_that_was_lost_comes_back(cluster: Callable[[int], Cluster]) -> None:
        found = cluster(2)
        found.lists("h0:1", "h1:1")
        job = found.run("--min-np", 1, "--max-np", 2)
        job.await_lines(2, "world of 2 from 0")
        found.hosts[1].blackhole()
        job.await_lines(1, "world of 1")
        found.hosts[1].heal()
        job.await_lines(2, "world of 2")
        out, err = found.stop(job)
        assert "rank 1 on h1" in err and "was lost" in err and "h1 (10.77.0.11) has joined" in err, err
        assert len(re.findall(r"ended \d of 2", out)) == 2, out


if LONG:

    def test_the_only_rank_of_a_host_is_replaced(cluster: Callable[[int], Cluster]) -> None:
        """Its agent has no rank left for a while; the host keeps its place all the same."""
        found = cluster(3)
        found.lists("h0:1", "h1:1", "h2:1")
        job = found.run("--min-np", 1, "--max-np", 3, "--blacklist-cooldown-range", 0.2, 0.2)
        job.await_lines(3, "world of 3 from 0")
        for victim in (1, 2, 1):
            (pid, *_) = ranks(found.hosts[victim])[0].split()
            found.hosts[victim].run(["kill", "-KILL", pid])
            job.await_lines(3, "world of 3")
        out, err = found.stop(job)
        assert len(re.findall(r"ended \d of 3", out)) == 3, out
        assert err.count("killed by SIGKILL") == 3 and "No route to host" not in err, err
