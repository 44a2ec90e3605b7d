"""The lab of hosts: what its hosts share and do not, how the network between them fails, and that nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from lab import Host, Lab

SUPPORT = Path(__file__).parents[1] / "support"
KINDS = ("net", "uts", "ipc", "pid", "mnt")
CONNECT = """
import socket, sys, time
try:
    took = []
    for _ in range(int(sys.argv[2])):
        began = time.monotonic()
        socket.create_connection((sys.argv[1], 22), float(sys.argv[3])).close()
        took.append(time.monotonic() - began)
    print(min(took))
except OSError as error:
    print(type(error).__name__)
"""
RECEIVE = """
import socket, time
with socket.create_server(("", 5000)) as server:
    print("listens", flush=True)
    peer = server.accept()[0]
    began = time.monotonic()
    received = sum(iter(lambda: len(peer.recv(1 << 16)), 0))
    print(received / (time.monotonic() - began))
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as peer:
    peer.sendall(bytes(int(sys.argv[2])))
"""
HOLD = """
import sys, pathlib, psutil, time
from lab import Lab
lab = Lab(pathlib.Path(sys.argv[1]))
hosts = lab.hosts(2)
lab.delay(hosts[0], 1)
hosts[0].start(["sleep", "1000"])
while not any(child.name() == "sleep" for child in psutil.Process().children(recursive=True)):
    time.sleep(0.01)
print("holds", flush=True)
time.sleep(1000)
"""


def connects(host: Host, to: Host, times: int = 1, limit_s: float = 15) -> str:
    """The shortest of the times that connecting to sshd took, else the name of the error."""
    done = host.run([sys.executable, "-c", CONNECT, to.address, str(times), str(limit_s)])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def is_reached(host: Host, to: Host) -> bool:
    return connects(host, to)[0].isdigit()


def is_silent(host: Host, to: Host) -> bool:
    """Nothing at all comes back, not even a refusal."""
    return connects(host, to, limit_s=0.4) == "TimeoutError"


def await_true(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(params=["bridge", "delay_switch"])
def partitioned(lab: Lab, request: pytest.FixtureRequest) -> Lab:
    """A lab whose switch is the kernel's, or ours."""
    lab.hosts(2)
    if request.param == "delay_switch":
        lab.delay(lab.hosts(1)[0], 100)
    return lab


def test_hosts_reach_each_other_by_ssh_under_all_names(lab: Lab) -> None:
    one, two = lab.hosts(2)
    for name in (two.name, two.address, two.address6):
        done = one.run([*lab.ssh_command, name, "hostname"])
        assert (done.returncode, done.stdout, done.stderr) == (0, "h1\n", "")


def test_logins_read_no_start_files_of_this_machine(lab: Lab) -> None:
    one, two = lab.hosts(2)
    done = one.run([*lab.ssh_command, two.name, "cd && pwd && ls -A"])
    assert (done.stdout, done.stderr) == (f"{lab.files.home}\n", "")


def test_hosts_have_namespaces_and_shared_memory_of_their_own(lab: Lab) -> None:
    hosts = lab.hosts(2)
    command = [
        "sh",
        "-c",
        f"hostname; cat /proc/1/comm; for i in {' '.join(KINDS)}; do readlink /proc/self/ns/$i; done",
    ]
    answers = [host.run(command).stdout.split() for host in hosts]
    ours = [os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS]
    assert [answer[:2] for answer in answers] == [["h0", "sshd"], ["h1", "sshd"]]
    assert all(len({*each}) == 3 for each in zip(ours, answers[0][2:], answers[1][2:], strict=True))
    hosts[0].run(["touch", "/dev/shm/farandole-lab"])
    assert [host.run(["ls", "/dev/shm"]).stdout for host in hosts] == ["farandole-lab\n", ""]
    assert not Path("/dev/shm/farandole-lab").exists()


def test_hosts_can_be_added(lab: Lab) -> None:
    (first,) = lab.hosts(1)
    *_, last = lab.hosts(3)
    assert lab.hosts(1) == [first]
    assert is_reached(first, last)


def test_processes_inside_are_signalled_and_know_the_working_directory(lab: Lab, tmp_path: Path) -> None:
    (host,) = lab.hosts(1)
    script = "trap 'exit 7' TERM; pwd; while :; do sleep 0.05; done"
    with host.start(["sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == f"{tmp_path}\n"
        process.terminate()
        assert process.wait(20) == 7
    with host.start(["sleep", "1000"]) as process:
        process.kill()
        assert process.wait(20) == -signal.SIGKILL


def test_a_partition_is_silent_and_heals(partitioned: Lab) -> None:
    one, two = partitioned.hosts(2)
    assert is_reached(one, two)
    two.blackhole()
    assert is_silent(one, two)
    assert "LOWER_UP" in two.run(["ip", "link", "show", "eth0"]).stdout
    two.heal()
    assert is_reached(one, two)


def test_groups_are_split_and_joined(partitioned: Lab) -> None:
    one, two, three = partitioned.hosts(3)
    assert is_reached(one, two)
    partitioned.split([one], [two, three])
    assert is_silent(one, two)
    assert is_reached(two, three)
    partitioned.join()
    assert is_reached(one, two)


def test_an_unplugged_host_sees_it(partitioned: Lab) -> None:
    one, two = partitioned.hosts(2)
    two.unplug()
    await_true(lambda: "NO-CARRIER" in two.run(["ip", "link", "show", "eth0"]).stdout)
    two.plug()
    assert is_reached(one, two)


@pytest.mark.parametrize("receiver", [0, 1])
def test_shaping_limits_the_rate_in_both_directions(lab: Lab, receiver: int) -> None:
    hosts = lab.hosts(2)
    hosts[0].shape("20mbit")
    to, by = hosts[receiver], hosts[1 - receiver]
    with to.start([sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "listens\n"
        by.run([sys.executable, "-c", SEND, to.address, "1500000"])
        assert 5e6 < float(process.stdout.readline()) * 8 < 40e6
    hosts[0].shape("")


def test_delays_of_both_hosts_add_up(lab: Lab) -> None:
    one, two = lab.hosts(2)
    assert float(connects(one, two, 10)) < 0.02
    lab.delay(one, 2_000)
    lab.delay(two, 8_000)
    assert 0.02 <= float(connects(one, two, 10)) < 0.06
    lab.delay(one, 0)
    lab.delay(two, 0)
    assert float(connects(one, two, 10)) < 0.02


def test_a_crash_ends_all_processes_of_a_host_and_nothing_else(partitioned: Lab) -> None:
    one, two, three = partitioned.hosts(3)
    with two.start(["sh", "-c", "echo runs; exec sleep 1000"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "runs\n"
        two.crash()
        assert process.wait(20) == -signal.SIGKILL
    assert not psutil.pid_exists(two.pid)
    assert not connects(one, two, limit_s=0.4)[0].isdigit()
    *_, three, four = partitioned.hosts(4)
    assert is_reached(one, three)
    assert is_reached(three, four)


def test_ssh_refuses_a_host_whose_key_has_changed(lab: Lab) -> None:
    one, two = lab.hosts(2)
    two.new_host_key()
    done = one.run([*lab.ssh_command, two.name, "hostname"])
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


@pytest.mark.usefixtures("lab")  # which skips where there cannot be one
def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    """Not one process; so no namespace, since none has a name, and no mount, since all lie in namespaces.

    Numbers of namespaces tell nothing: the kernel gives them to other labs at once.
    """
    paths = os.pathsep.join([str(SUPPORT), *filter(None, sys.path)])
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout.readline() == "holds\n"
            left = psutil.Process(holder.pid).children(recursive=True)
            names = {process.name() for process in left}
            assert {"cat", "sshd", "sleep"} <= names
            assert any(name.startswith("delay_switch") for name in names)
        finally:
            holder.kill()
    await_true(lambda: not any(process.is_running() for process in left))
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


def test_nothing_is_left_after_the_end(lab: Lab, tmp_path: Path) -> None:
    interfaces = {*psutil.net_if_addrs()}
    lab.hosts(2)
    left = psutil.Process().children(recursive=True)
    lab.close()
    assert {*psutil.net_if_addrs()} <= interfaces
    assert not any(process.is_running() for process in left)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
