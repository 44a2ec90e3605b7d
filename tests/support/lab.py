"""A lab: hosts on one machine, each with its own network, name, processes, shared memory and sshd.

    def test_hosts_meet(lab):
        one, two = lab.hosts(2)
        assert one.run([*lab.ssh_command, two.name, "hostname"]).stdout == "h1\\n"

Hosts share the file system (except /dev/shm, /run and /proc), the clock and the boot ID. They are joined by a switch
that has a network namespace of its own, so this machine gets no interface. Any number of labs can run at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab_namespaces import IS_ROOT, LIMIT_S, CannotMake, Namespaces, ProcessInside, end, innermost, program
from lab_ssh import SshFiles
from lab_switch import Switch, shape


class Host:
    """A host of a lab. It exists once `Lab.hosts` has connected it to the switch."""

    def __init__(self, lab: Lab, index: int) -> None:
        self.name = f"h{index}"
        self.address = f"10.77.0.{10 + index}"
        self.address6 = f"fd77::{10 + index}"
        self._lab = lab
        script = lab.files.add(self.name, (self.address, self.address6))
        self._process = lab.namespaces.start_first_process("sh", str(script))
        self.pid = innermost(self._process)  # of process 1, as seen outside of the lab

    def start(self, command: Sequence[str | Path], **options: Any) -> ProcessInside:
        """Starts a process here; the options are those of Popen. It ends with the lab at the latest."""
        inside = self._lab.namespaces.enter(self.pid, "net", "uts", "ipc", "pid", "mount")
        if not IS_ROOT:  # as sshd's sessions, it has the user's own number
            inside += [program("nsenter"), "--target=1", "--user", "--preserve-credentials", "--"]
        # The working directory must be found again in the host's mounts: the inherited one is outside of them.
        folder = options.pop("cwd", None) or Path.cwd()
        return ProcessInside([*inside, program("env"), f"--chdir={folder}", *map(str, command)], **options)

    def run(
        self, command: Sequence[str | Path], timeout: float = LIMIT_S, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a process here to its end; by default its output is text, and is kept."""
        usual: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.start(command, **{**usual, "text": True, **options}) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def shape(self, rate: str) -> None:
        """Limits the rate in both directions, such as "100mbit"; "" lifts the limit."""
        shape(self._lab.namespaces, self.pid, "eth0", rate)
        self._lab.switch.shape(self.name, rate)

    def blackhole(self) -> None:
        """Loses all frames from and to the host in silence, as a partition does. Its carrier stays."""
        self._lab.switch.connect(self.name, False)

    def heal(self) -> None:
        """Ends `blackhole`."""
        self._lab.switch.connect(self.name, True)

    def unplug(self) -> None:
        """Takes the carrier from the host, which can see that."""
        self._lab.switch.plug(self.name, False)

    def plug(self) -> None:
        """Ends `unplug`."""
        self._lab.switch.plug(self.name, True)

    def crash(self) -> None:
        """Kills all processes of the host, for good.

        The kernel still closes their connections, which peers see. To have it silent, call `blackhole` before.
        """
        os.kill(self.pid, signal.SIGKILL)
        end(self._process)
        self._lab.switch.remove(self.name)

    def new_host_key(self) -> None:
        """Changes the key of the host, which known_hosts does not follow."""
        self._lab.files.new_host_key(self.name)
        heard = self._lab.files.log(self.name).count("Server listening")
        os.kill(self.pid, signal.SIGHUP)
        self.await_sshd(heard + 2)

    def connected(self) -> None:
        """Lets the host go on, once the switch has given it an interface."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def await_sshd(self, times: int = 2) -> None:
        """Waits until sshd has begun to listen as often as this; it does so once for each address."""
        until = time.monotonic() + LIMIT_S
        while self._lab.files.log(self.name).count("Server listening") < times:
            if self._process.poll() is not None or time.monotonic() > until:
                assert self._process.stderr is not None
                os.set_blocking(self._process.stderr.fileno(), False)
                raise RuntimeError(f"{self.name}: {self._process.stderr.read()}\n{self._lab.files.log(self.name)}")
            time.sleep(0.01)

    def close(self) -> None:
        """Awaits the end of the host, whose processes the end of the lab has killed."""
        end(self._process)


class Lab:
    """Hosts and the switch between them. The folder holds their keys, settings and logs."""

    def __init__(self, folder: Path) -> None:
        self.files = SshFiles(folder)
        self.namespaces = Namespaces()
        self._hosts: list[Host] = []
        try:
            self.switch = Switch(self.namespaces)
        except BaseException:
            self.namespaces.close()
            raise

    def close(self) -> None:
        """Ends all hosts. The kernel has removed all that they had when this returns, except the switch's interfaces,
        which it removes a little later."""
        self.namespaces.close()
        self.switch.close()
        for host in self._hosts:
            host.close()

    @property
    def ssh_config(self) -> Path:
        """The settings of ssh within hosts: a key that all accept, and the keys of all."""
        return self.files.config

    @property
    def ssh_command(self) -> list[str]:
        """The start of a command within hosts: `host.run([*lab.ssh_command, "h1", "hostname"])`."""
        return ["ssh", "-F", str(self.ssh_config)]

    def hosts(self, count: int) -> list[Host]:
        """The first hosts, h0, h1, ...; starts those that do not exist yet."""
        fresh = []
        while len(self._hosts) < count:
            self._hosts.append(Host(self, len(self._hosts)))
            fresh.append(self._hosts[-1])
        self.switch.add({host.name: host.pid for host in fresh})
        for host in fresh:
            host.connected()
        for host in fresh:
            host.await_sshd()
        return self._hosts[:count]

    def delay(self, host: Host, microseconds: int) -> None:
        """Delays frames from and to a host by this much each: A to B takes the delay of A and that of B.

        From the first call on, a program of ours forwards all frames. It carries some Gbit/s.
        """
        self.switch.delay(host.name, microseconds)

    def split(self, group: Sequence[Host], other: Sequence[Host]) -> None:
        """Loses frames between two groups in silence."""
        self.switch.split({**{host.name: 0 for host in group}, **{host.name: 1 for host in other}})

    def join(self) -> None:
        """Ends `split`."""
        self.switch.join()


@pytest.fixture(name="lab")
def lab_fixture(tmp_path: Path) -> Iterator[Lab]:
    """A lab without hosts yet. Skips where it cannot be made, which is a failure under CI=true."""
    folder = tmp_path / "lab"
    folder.mkdir()
    try:
        made = Lab(folder)
    except CannotMake as why:
        pytest.skip(str(why))
    try:
        yield made
    finally:
        made.close()
