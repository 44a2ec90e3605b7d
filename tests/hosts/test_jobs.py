"""`farandole run` on several hosts: places, sums, faults, and what is left. FARANDOLE_LONG=1: ten times as many."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from host_jobs import PLACES, await_nothing, processes
from lab import Host, Lab

LONG = bool(os.environ.get("FARANDOLE_LONG"))
pytestmark = pytest.mark.timeout(300)
SOON_S = 15.0  # 4 to 6 s where the machine is not busy; an agent alone notices after 30 s

# The ranks meet again and again; "ready" tells that they have begun.
STEPS = """
import sys, time, numpy as np, farandole.numpy as hvd
hvd.init()
for step in range(100_000):
    hvd.allreduce(np.ones(int(sys.argv[1])), name="step")
    if step == 20:
        print("ready", flush=True)
    time.sleep(0.002)
"""

# They meet until the file of the argument is there.
UNTIL = """
import os, sys, numpy as np, farandole.numpy as hvd
hvd.init()
step = 0
while not hvd.allreduce(np.array([os.path.exists(sys.argv[1])], np.int32), op=hvd.Max, name="step").any():
    if step == 20:
        print("ready", flush=True)
    step += 1
print("ended")
"""


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("count", [2, 4] if LONG else [2])
def test_ranks_find_their_places_and_sum_over_hosts(lab: Lab, launch: Callable, script: Callable, count: int) -> None:
    hosts = lab.hosts(count)
    spec = ",".join(f"{host.name}:2" for host in hosts)
    code, out, err = launch(hosts, "-H", spec, script(PLACES)).finish()
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == [
        f"[{rank} h{rank // 2}] {rank} {2 * count} {rank % 2} {rank // 2} h{rank // 2} {hosts[0].address}"
        for rank in range(2 * count)
    ]
    await_nothing(hosts)


def test_lines_of_a_job_file_wait_for_the_ranks_of_all_hosts(lab: Lab, launch: Callable, tmp_path: Path) -> None:
    hosts = lab.hosts(2)
    lines = "['test $FARANDOLE_RANK = 3 && sleep 0.5; touch one.$FARANDOLE_RANK', 'ls one.* | wc -l', 'false', echo no]"
    text = f"project: a\ntrain:\n  workers: {{count: 2, processes: 2}}\n  run: {lines}\n"
    (tmp_path / "job.yml").write_text(text)
    code, out, err = launch(hosts, "-H", "h0:2,h1:2", "-f", "job.yml").finish()
    assert sorted(out.splitlines()) == [f"[{rank} h{rank // 2}] 4" for rank in range(4)]
    assert code == 1 and "line 3 of 4, 'false', ended with exit code 1; line 4 was not started." in err
    await_nothing(hosts)


def test_a_launcher_on_a_host_without_ranks_and_ipv6(lab: Lab, launch: Callable, script: Callable) -> None:
    hosts = lab.hosts(3)
    job = launch(hosts, "-H", f"[{hosts[1].address6}]:1,h2:1", "--network-interfaces", "eth0", script(PLACES))
    code, out, err = job.finish()
    assert (code, err) == (0, "") and len(out.splitlines()) == 2


def test_a_host_that_vanishes_is_named_soon(lab: Lab, launch: Callable, script: Callable) -> None:
    hosts = lab.hosts(2)
    job = launch(hosts, "-H", "h0:2,h1:2", script(STEPS), "4")
    job.await_lines(4, "ready")
    hosts[1].blackhole()
    began = time.monotonic()
    told = job.process.stderr.readline()
    assert time.monotonic() - began < SOON_S
    assert "h1" in told and "rank" in told, told
    code, _, err = job.finish()
    assert code != 0 and "on h1" in err.splitlines()[0] and "was lost" in err
    hosts[1].heal()
    await_nothing(hosts, 40.0)


def test_a_pause_of_the_network_is_survived_where_that_is_asked_for(
    lab: Lab, launch: Callable, script: Callable, tmp_path: Path
) -> None:
    hosts = lab.hosts(2)
    path, quiet, patient = script(UNTIL), {"FARANDOLE_WARN_AFTER": "1000"}, "FARANDOLE_SILENCE_TIMEOUT"
    job = launch(hosts, "-H", "h0:2,h1:2", path, tmp_path / "end", **quiet, **{patient: "20"})
    other = launch(hosts, "-H", "h0:1,h1:1", "-x", f"{patient}=20", path, tmp_path / "never", **quiet)
    job.await_lines(4, "ready")
    other.await_lines(2, "ready")
    hosts[1].blackhole()
    time.sleep(10)  # the pause
    hosts[1].heal()
    (tmp_path / "end").touch()
    code, out, err = job.finish()
    assert code == 0 and "lost" not in err and out.count("ended") == 4, err
    assert other.process.poll() is None
    hosts[1].blackhole() if LONG else hosts[1].crash()
    code, _, err = other.finish()
    assert code != 0 and "rank 1 on h1" in err and "was lost" in err


@pytest.mark.parametrize("elements", [4, 4_000_000] if LONG else [4_000_000])
def test_a_stopped_rank_is_not_declared_dead(lab: Lab, launch: Callable, script: Callable, elements: int) -> None:
    """With much on its way to it, too, so that the window of its connection is full."""
    hosts = lab.hosts(2)
    job = launch(hosts, "-H", "h0:1,h1:1", script(STEPS), str(elements), FARANDOLE_WARN_AFTER="1000")
    job.await_lines(2, "ready")
    (number, *_) = processes(hosts[1], "python", "train.py")[-1].split()
    hosts[1].run(["kill", "-STOP", number])
    time.sleep(60 if LONG else 12)
    assert job.process.poll() is None
    hosts[1].run(["kill", "-CONT", number])
    time.sleep(1)
    assert job.process.poll() is None
    job.process.terminate()
    code, _, err = job.finish()
    assert code in (143, -15) and "lost" not in err, err


WRONG = [
    ("-H h0:1,h9:1", "h9 is no name that this machine knows"),
    ("-H h0:1,10.77.0.99:1", "10.77.0.99 cannot be reached"),
    ("-H h0:1,h1:1 -p 2222", "h1: no ssh server answers there"),
    ("-H h0:1,h1:1 --python /no/python", "h1 cannot run /no/python"),
    ("-H h0:1,h1:1 --python /bin/true", "h1: ssh ended with exit code 0"),
    ("-H h0:1,h1:1 --network-interfaces eth7", "h0 has no address for other hosts on these interfaces"),
    ("-H h1:1,10.77.0.11:1", "h1 and 10.77.0.11 are one machine"),
]


def test_a_mistake_is_one_sentence_within_ten_seconds(lab: Lab, launch: Callable, script: Callable) -> None:
    hosts = lab.hosts(2)
    jobs = [(launch(hosts, *arguments.split(), script(PLACES)), words) for arguments, words in WRONG]
    for job, words in jobs:
        code, out, err = job.finish()
        assert (code, out) == (2, ""), err
        assert words in err and err.count("\n") == 1
        assert time.monotonic() - job.began < 20  # all of them at once
    hosts[1].new_host_key()
    code, _, err = launch(hosts, "-H", "h0:1,h1:1", script(PLACES)).finish()
    assert code == 2 and "h1: its ssh host key is not the one that is known here" in err and err.count("\n") == 1


def test_hosts_that_cannot_connect_to_each_other_are_named(lab: Lab, launch: Callable, script: Callable) -> None:
    hosts = lab.hosts(3)
    for address in (hosts[1].address, hosts[1].address6):  # the launcher still reaches both
        hosts[2].run(["ip", "route", "add", "unreachable", address])
    code, _, err = launch(hosts, "-H", "h1:1,h2:1", script(PLACES)).finish()
    assert code == 2 and "h2 cannot connect to h1 (10.77.0.11" in err and "firewall" in err


def test_dead_hosts_are_tried_at_the_same_time(lab: Lab, launch: Callable, script: Callable) -> None:
    """A hundred take 5 s on an idle machine; one after the other, 300."""
    dead = ",".join(f"10.77.0.{number}:1" for number in range(100, 200))
    job = launch(lab.hosts(1), "-H", dead, script(PLACES))
    code, _, err = job.finish()
    assert code == 2 and time.monotonic() - job.began < 60
    assert err.count("cannot be reached") == 8 and err.endswith("more hosts failed.\n")


def test_a_running_job_listens_for_messages_at_its_own_addresses_only(
    lab: Lab, launch: Callable, script: Callable
) -> None:
    """Each rank keeps one listener of the start, for messages between two ranks."""
    hosts = lab.hosts(2)
    job = launch(hosts, "-H", "h0:2,h1:2", script(STEPS), "4")
    job.await_lines(4, "ready")
    listening = [line.split()[3] for host in hosts for line in host.run(["ss", "-Hltn"]).stdout.splitlines()]
    ours = [address for address in listening if not address.endswith(":22")]
    assert len(ours) == 4 and all(address.startswith("10.77.0.") for address in ours), listening
    job.process.terminate()
    job.finish()
    await_nothing(hosts)


TARGETS = ["farandole.launch run", "launch.agent.host_agent", "ssh -F", "train.py"]
SIGNALS = ["INT", "TERM", "KILL"]
# By the signal, where ssh does not end with 255 for it; -9 is of the launcher's outer process.
EXIT_CODES = {"INT": (130, 255), "TERM": (143, 255), "KILL": (137, -9)}


@pytest.mark.timeout(3600)
def test_whoever_is_killed_leaves_nothing_on_any_host(lab: Lab, launch: Callable, script: Callable) -> None:
    hosts = lab.hosts(2)
    path = script(STEPS)
    for number in range(200 if LONG else 12):
        target, signal = TARGETS[number % len(TARGETS)], SIGNALS[number // len(TARGETS) % len(SIGNALS)]
        job = launch(hosts, "-H", "h0:2,h1:2", path, "4")
        job.await_lines(4, "ready")
        time.sleep(number % 10 / 100)
        on_launchers = target in ("farandole.launch run", "ssh -F")
        where = hosts[0] if on_launchers else hosts[number % 2]
        found = [line.split()[0] for line in processes(where, target) if target == "ssh -F" or "ssh -F" not in line]
        where.run(["kill", f"-{signal}", found[number // 12 % len(found)]])
        code, _, err = job.finish(20)
        assert code in EXIT_CODES[signal], (target, signal, code, err)
        await_nothing(hosts)


def test_fifty_jobs_at_once_do_not_disturb_each_other(lab: Lab, launch: Callable, script: Callable) -> None:
    hosts: list[Host] = lab.hosts(2)
    jobs = [launch(hosts, "-H", "h0:1,h1:1", script(PLACES)) for _ in range(50 if LONG else 5)]
    assert [job.finish(200)[0] for job in jobs] == [0] * len(jobs)
    await_nothing(hosts)
