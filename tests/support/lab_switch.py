"""The switch between a lab's hosts: bridges of the kernel, or, once a delay is set, delay_switch.c."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab_namespaces import CannotMake, Namespaces, end, program, start_and_await_line

_SOURCE = Path(__file__).with_name("delay_switch.c")
_MADE = Path(__file__).parents[2] / ".nox" / "lab"
_BRIDGES = ("br0", "br1")  # those of both groups of a split


@dataclass
class Port:
    """The state of a switch's port."""

    delay_us: int = 0
    group: int = 0
    connected: bool = True


def delay_switch() -> Path:
    """The compiled program."""
    made = _MADE / f"delay_switch_{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]}"
    _MADE.mkdir(parents=True, exist_ok=True)
    with (_MADE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            fresh = made.with_suffix(".new")
            command = [os.environ.get("CC") or program("gcc"), "-O2", str(_SOURCE), "-o", str(fresh)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
            if done.returncode != 0:
                raise CannotMake(f"{_SOURCE.name} cannot be compiled: {done.stderr}")
            fresh.rename(made)
    return made


class Switch:
    """Has a port p-NAME for each host, which is called by the host's name here."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._ports: dict[str, Port] = {}
        self._process: subprocess.Popen[str] | None = None  # the program for delays
        self._known: list[str] = []  # by the program, which takes a port's index
        # A bridge that snoops would lose IPv6's search for neighbours after a partition.
        self._ip(*(f"link add {each} type bridge stp_state 0 mcast_snooping 0" for each in _BRIDGES))
        self._ip(*(f"link set {each} up" for each in _BRIDGES))

    def close(self) -> None:
        """Ends the program for delays."""
        if self._process is not None:
            end(self._process)
        self._process = None

    def add(self, hosts: dict[str, int]) -> None:
        """Connects hosts, which are given with the PID of a process in each."""
        for name, pid in hosts.items():
            self._ports[name] = Port()
            self._ip(f"link add p-{name} type veth peer name eth0 netns {pid}", f"link set p-{name} up")
        if self._process is not None:  # the ports of the program are fixed: frames on their way are lost
            self.close()
            self._start_delaying()
        else:
            for name in hosts:
                self._apply(name)

    def remove(self, name: str) -> None:
        """Forgets the port of a host that is gone; its interface vanishes with the host."""
        del self._ports[name]

    def delay(self, name: str, microseconds: int) -> None:
        """Delays frames from and to a host by this much each."""
        self._ports[name].delay_us = microseconds
        if self._process is None:
            self._start_delaying()
        self._apply(name)

    def connect(self, name: str, connected: bool) -> None:
        """Without connection, frames are lost in silence."""
        self._ports[name].connected = connected
        self._apply(name)

    def plug(self, name: str, plugged: bool) -> None:
        """Unplugged, the host's interface has no carrier."""
        self._ip(f"link set p-{name} {'up' if plugged else 'down'}")

    def split(self, groups: dict[str, int]) -> None:
        """Frames stay within a group."""
        for name, group in groups.items():
            self._ports[name].group = group
            self._apply(name)

    def join(self) -> None:
        """Puts all hosts into one group."""
        self.split(dict.fromkeys(self._ports, 0))

    def shape(self, name: str, rate: str) -> None:
        """Limits the rate of frames to a host."""
        shape(self._namespaces, self._namespaces.pid, f"p-{name}", rate)

    def _ip(self, *lines: str) -> None:
        self._namespaces.configure(self._namespaces.pid, "ip", "-batch", "-", batch=lines)

    def _apply(self, name: str) -> None:
        port = self._ports[name]
        if self._process is not None:
            self._tell(f"{self._known.index(name)} {port.delay_us} {port.group} {int(port.connected)}")
            return
        # A port without bridge loses frames, too, and unlike a disabled port it stays so when its carrier returns.
        self._ip(f"link set p-{name} {f'master {_BRIDGES[port.group]}' if port.connected else 'nomaster'}")

    def _start_delaying(self) -> None:
        self._known = [*self._ports]
        names = [f"p-{name}" for name in self._known]
        self._ip(*(f"link set {name} nomaster" for name in names))
        inside = self._namespaces.enter(self._namespaces.pid, "net", "pid")
        self._process, said = start_and_await_line([*inside, str(delay_switch()), *names])
        if said != "ok\n":
            raise RuntimeError(f"{_SOURCE.name} does not start: {said}")
        for name in self._ports:
            self._apply(name)

    def _tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "ok\n":
            raise RuntimeError(f"{_SOURCE.name} has ended")


def shape(namespaces: Namespaces, pid: int, interface: str, rate: str) -> None:
    """Limits the rate at which an interface sends, such as "100mbit"; "" lifts the limit."""
    change = ["replace", "dev", interface, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
    namespaces.configure(pid, "tc", "qdisc", *(change if rate else ["del", "dev", interface, "root"]))
