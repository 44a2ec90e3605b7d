"""The files of a lab's hosts: keys, settings of ssh and sshd, names of hosts, and the script that starts a host."""

from __future__ import annotations

import getpass
import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path

from lab_namespaces import IS_ROOT, LIMIT_S, PATH, CannotMake, program

# .ci/dev/debian.py unpacks openssh-server here, rather than install it, which would start a server on this machine.
UNPACKED = Path(__file__).parents[2] / ".nox" / "sshd"

_CLIENT = """\
Host *
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 5
  LogLevel ERROR
"""

# Like Debian's, it accepts no variables of the client. StrictModes would refuse the key of a world-writable folder.
_SERVER = """\
Port 22
ListenAddress {addresses[0]}
ListenAddress {addresses[1]}
HostKey {folder}/{name}/host_key
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
PrintMotd no
PrintLastLog no
MaxStartups 200
"""

# sshd is process 1, so it also reaps the orphans of the host. It checks that the user sshd exists.
_START = """\
set -e
export PATH={path}
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
mount --bind {folder}/hosts /etc/hosts
mount --bind {folder}/passwd /etc/passwd
{prepare}
hostname {name}
echo up
read -r network_is_there
ip -batch - <<END
link set lo up
link set eth0 up
address add {addresses[0]}/24 dev eth0
address add {addresses[1]}/64 dev eth0 nodad
END
{user}{sshd} -D -e -f {folder}/{name}/sshd_config 2>>{folder}/{name}/sshd.log
"""

# Logins are those of one user, since a plain user's namespace has no other. Port 22 needs no right there.
_AS_PLAIN_USER = """\
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
exec unshare --user --map-user={uid} --map-group={gid} """


def _sshd() -> tuple[str, str]:
    """The start of sshd's command, and a command before that. One that is only unpacked needs its libraries, and from
    version 9.8 on the programs of its sessions where they would be installed."""
    server = UNPACKED / "usr" / "sbin" / "sshd"
    if shutil.which("sshd", path=PATH) is not None or not server.exists():
        return shlex.quote(program("sshd")), ""
    libraries = ":".join(map(str, UNPACKED.glob("usr/lib/*-linux-*")))
    sessions = f"mount --bind {shlex.quote(str(UNPACKED / 'usr/lib/openssh'))} /usr/lib/openssh"
    return f"env LD_LIBRARY_PATH={shlex.quote(libraries)} {shlex.quote(str(server))}", sessions


def _make_key(path: Path) -> None:
    command = [program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, timeout=LIMIT_S)


def _users(name: str, home: Path) -> str:
    """The lines of /etc/passwd, with one for sshd, and with this home of the user.

    A login shell reads start files in its home. Those of the machine's user can do anything: print, wait, or hold a
    lock that all hosts share.
    """
    users = [user for user in pwd.getpwall() if user.pw_name != name]
    found = pwd.getpwnam(name)
    lines = [":".join(map(str, user)) for user in [(*found[:5], home, found.pw_shell), *users]]
    if not any(user.pw_name == "sshd" for user in users):
        lines.append("sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin")
    return "\n".join([*lines, ""])


class SshFiles:
    """The files of a lab, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "ssh_config"
        for name in ("ssh", "ip", "tc"):
            program(name)
        self._sshd, self._prepare = _sshd()
        if any(character in str(folder) for character in " \"'$\n"):
            raise CannotMake(f"the path {folder} has characters that are special to ssh")
        self.config.write_text(_CLIENT.format(folder=folder, user=getpass.getuser()))
        self.home = folder / "home"
        self.home.mkdir()
        (folder / "passwd").write_text(_users(getpass.getuser(), self.home))
        (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost\n")
        _make_key(folder / "key")

    def add(self, name: str, addresses: tuple[str, str]) -> Path:
        """Writes the files of a host; returns the script that starts it."""
        place = self.folder / name
        place.mkdir()
        self.new_host_key(name)
        key = " ".join((place / "host_key.pub").read_text().split()[:2])
        with (self.folder / "known_hosts").open("a") as known, (self.folder / "hosts").open("a") as hosts:
            known.write(f"{name},{','.join(addresses)} {key}\n")
            hosts.writelines(f"{address} {name}\n" for address in addresses)
        values: dict[str, object] = {"folder": self.folder, "name": name, "addresses": addresses}
        (place / "sshd_config").write_text(_SERVER.format(**values))
        (place / "sshd.log").touch()
        values |= {"path": shlex.quote(PATH), "prepare": self._prepare, "sshd": self._sshd}
        values["user"] = "exec " if IS_ROOT else _AS_PLAIN_USER.format(uid=os.getuid(), gid=os.getgid())
        (place / "start.sh").write_text(_START.format(**values))
        return place / "start.sh"

    def new_host_key(self, name: str) -> None:
        """Makes the key of a host; a second one is not that in known_hosts."""
        for ending in ("", ".pub"):
            (self.folder / name / f"host_key{ending}").unlink(missing_ok=True)
        _make_key(self.folder / name / "host_key")

    def log(self, name: str) -> str:
        """The output of a host's sshd."""
        return (self.folder / name / "sshd.log").read_text()
