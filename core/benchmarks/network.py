"""Hosts of a benchmark: network namespaces on this machine, joined by the switch of the tests' lab.

    with connected(2) as network:
        network.become(Link(rate="1gbit"))
        network.hosts[0].start(["hostname"])

Each host also has a name, processes and shared memory of its own, as a machine has. They vanish with this process.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from lab_namespaces import Namespaces, end, innermost, program
from lab_switch import Switch, shape

# The last process ends when the pipe from this process closes, and everything of the host with it.
_START = """\
set -e
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
hostname {name}
echo up
read -r network_is_there
ip link set lo up
ip link set eth0 up
ip address add {address}/24 dev eth0
echo connected
exec cat
"""


@dataclass(frozen=True)
class Link:
    """The cable of a host."""

    rate: str = ""  # as tc writes it; "": as fast as the machine copies
    port_us: int = 0  # the delay of a port; a frame passes two


class Host:
    """A host, which `Network` connects."""

    def __init__(self, namespaces: Namespaces, index: int) -> None:
        self.name = f"h{index}"
        self.address = f"10.78.0.{10 + index}"
        self._namespaces = namespaces
        script = _START.format(name=self.name, address=self.address)
        self.process = namespaces.start_first_process(program("sh"), "-c", script)
        self.pid = innermost(self.process)

    @property
    def inside(self) -> tuple[str, ...]:
        """The start of a command here."""
        enter = self._namespaces.enter(self.pid, "net", "uts", "ipc", "pid", "mount")
        return (*enter, program("env"), f"--chdir={Path.cwd()}")  # the inherited folder is outside of the host's mounts

    @property
    def network_namespace(self) -> str:
        """A path."""
        return f"/proc/{self.pid}/ns/net"

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process here; the options are those of Popen."""
        return subprocess.Popen([*self.inside, *command], **options)

    def connect(self) -> None:
        """Let the host go on, once it has an interface."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "connected\n":
            assert self.process.stderr is not None
            raise RuntimeError(f"{self.name}: {self.process.stderr.read()}")


class Network:
    """Hosts and the switch between them."""

    def __init__(self, namespaces: Namespaces, switch: Switch, count: int) -> None:
        self.hosts = [Host(namespaces, index) for index in range(count)]
        self._namespaces = namespaces
        self._switch = switch
        self._link = Link()
        switch.add({host.name: host.pid for host in self.hosts})
        for host in self.hosts:
            host.connect()

    def become(self, link: Link) -> None:
        """Make all cables like this one. REQUIRES: once there was a delay there is one."""
        before, self._link = self._link, link
        for host in self.hosts:
            if link.rate != before.rate:
                shape(self._namespaces, host.pid, "eth0", link.rate)
                self._switch.shape(host.name, link.rate)
            if link.port_us or before.port_us:
                self._switch.delay(host.name, link.port_us)


@contextlib.contextmanager
def connected(count: int) -> Iterator[Network]:
    """So many hosts, until the end of the block."""
    with contextlib.ExitStack() as ending:
        namespaces = Namespaces()
        ending.callback(namespaces.close)
        switch = Switch(namespaces)
        ending.callback(switch.close)
        network = Network(namespaces, switch, count)
        for host in network.hosts:
            ending.callback(end, host.process)
        # Everything ends with the namespaces; the callbacks above then only wait for it.
        ending.callback(namespaces.close)
        yield network
