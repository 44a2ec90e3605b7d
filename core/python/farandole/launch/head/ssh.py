"""The ssh command that reaches a host, and the meaning of its exit. Pure."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Sequence

from farandole.launch.options import HostOptions

AGENT = ("-m", "farandole.launch.agent.host_agent")
CONNECT_SECONDS = 8
# It cannot ask for a password: it has no terminal here.
_OPTIONS = ("BatchMode=yes", f"ConnectTimeout={CONNECT_SECONDS}")
_PROBE_SECONDS = 2  # between questions whether the host is there


def agent_command(host: str, is_local: bool, options: HostOptions, ssh: Sequence[str]) -> list[str]:
    """The command that starts an agent on `host`, or without ssh on this machine. `ssh`: its first words.

    ssh gives a host up that has not answered for `silence_s`, or for up to 2 s more.

    REQUIRES a host that hosts.py has checked. Its name stands behind "--", so that it can never be an option.
    """
    if is_local:
        return [sys.executable, *AGENT]
    if options.scheduler is not None and options.scheduler.command is not None:
        return options.scheduler.command(host, [options.python, *AGENT])
    probes = math.ceil(options.silence_s / _PROBE_SECONDS)
    probing = f"ServerAliveInterval={_PROBE_SECONDS}", f"ServerAliveCountMax={probes}"
    args = [*ssh, "-T", "-x", *(word for option in (*_OPTIONS, *probing) for word in ("-o", option))]
    args += ["-p", str(options.ssh_port)] if options.ssh_port is not None else []
    args += ["-i", str(options.ssh_identity)] if options.ssh_identity else []
    # The other side's login shell reads the last word; quoted like this, every shell understands it alike.
    return [*args, "--", host, f"exec {shlex.join([options.python, *AGENT])}"]


# A pattern of stderr -> a sentence with {host}, {name}, {python}, {version}: the cause, "; ", its remedy.
_OF_SSH = (  # exit code 255
    (
        r"HOST IDENTIFICATION HAS CHANGED",
        "{host}: its ssh host key is not the one that is known here, so it may be another machine; if you know why, "
        "run ssh-keygen -R {name}, then ssh {name} once",
    ),
    (
        r"host key is known|Host key verification failed",
        "{host}: its ssh host key is not known here; run ssh {name} once, and compare the key that it shows",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "{host} refuses the login; ssh {name} true must work without a password (ssh-copy-id {name}, or -i FILE)",
    ),
    (r"Could not resolve hostname", "{host} is no name that this machine knows; check its spelling, or /etc/hosts"),
    (r"Connection refused", "{host}: no ssh server answers there; start sshd, or give its port with -p"),
    (
        r"timed out|No route to host|Network is unreachable",
        "{host} cannot be reached; check that it is up, and that no firewall is between",
    ),
)
_OF_THE_SHELL = ((r"", "{host} cannot run {python}; name the interpreter there with --python"),)  # exit code 126, 127
_OF_PYTHON = (
    (
        r"No module named '?farandole|Error while finding module specification for 'farandole",
        "{python} on {host} has no farandole {version}; run there: {python} -m pip install farandole=={version}",
    ),
)


def cause(host: str, code: int, stderr: str, python: str, version: str) -> tuple[str, str]:
    """Why no agent came of the command that ended with `code`: the cause, and its remedy, "" for an unknown cause."""
    name = host.rpartition("@")[2]
    causes = {255: _OF_SSH, 126: _OF_THE_SHELL, 127: _OF_THE_SHELL}.get(code, _OF_PYTHON)
    for pattern, sentence in causes:
        if re.search(pattern, stderr):
            what, _, remedy = sentence.format(host=host, name=name, python=python, version=version).partition("; ")
            return what, remedy
    return f"{host}: ssh ended with {manner(code)}{last_line(stderr)}", ""


def manner(code: int) -> str:
    """The way in which a process ended, for messages."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def last_line(text: str) -> str:
    """The last line that says something, after a colon and without control characters; "" where there is none."""
    lines = ["".join(each for each in line if each.isprintable()).strip() for line in text.splitlines()]
    found = next((line for line in reversed(lines) if line), "")
    return ": " + found[:300].rstrip(".") if found else ""
