"""A task's part of a job: it meets the driver's server, and runs the agent of its host if it is told to."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from farandole import __version__
from farandole._api.errors import FarandoleError
from farandole._cluster.commit_store import CommitTarget
from farandole._start import environment, task_environment, this_host
from farandole._start.connection import FAILURES, connect, hear, say
from farandole._start.frames import FrameError
from farandole._start.proof import ProofError

_CONNECT_SECONDS = 10.0
_END_SECONDS = 15.0  # of an agent whose connection has ended; it kills ranks that do not end by themselves


def _own_versions() -> dict[str, str]:
    return {"Python": ".".join(map(str, sys.version_info[:2])), "Farandole": __version__}


@dataclass(frozen=True)
class Invitation:
    """What a task needs to take part in the job of a server. `commits`: where ranks keep theirs outside of themselves.

    Its key may travel by disks, so it is not that of the ranks.
    """

    endpoint: tuple[str, int]
    key: bytes = field(repr=False)
    commits: CommitTarget | None = None
    versions: Mapping[str, str] = field(default_factory=_own_versions)


def serve(
    invitation: Invitation,
    *,
    order: int,
    secret: bytes = b"",
    name: str = "",
    identity: str = "",
    slots: int = 1,
    gpus: Iterable[str] = (),
    variables: Mapping[str, str] | None = None,
    leave_out: Iterable[str] = (),
) -> None:
    """Take part in the job of this server, until it ends.

    The agent dies with the thread that calls this, so call it on one that lives as long as the task.

    Args:
        invitation: by the server.
        order: the number of this task; ranks follow it.
        secret: the same for all tasks of the job; the server does not know it.
        name: of this host, for messages; by default its own.
        identity: the same for all tasks of this host; by default that of this machine and network.
        slots: ranks that may run here for this task.
        gpus: the addresses of the task's GPUs.
        variables: for the ranks; they replace those of this process.
        leave_out: beginnings of names of variables of this process that ranks must not see.

    Raises:
        FarandoleError: this host has other versions than the driver, cannot reach it, or is not known to it.
    """
    identity = identity or this_host.identity()
    about = {
        "order": order,
        "identity": identity,
        "name": name or socket.gethostname(),
        "slots": slots,
        "gpus": [*gpus],
    }
    _check_versions(invitation)
    with _connected(invitation, about) as connection:
        try:
            reported = hear(connection)
        except FAILURES:  # the job has ended, or needs no agent of this task
            return
        visible = task_environment.visible_gpus([str(each) for each in reported["gpus"]])
        with ExitStack() as lent:
            file = {} if invitation.commits is None else _lent(lent, invitation, invitation.commits)
            around = task_environment.around_agent(leave_out, sys.path, {**visible, **(variables or {}), **file})
            _run_agent(connection, secret, around)


def _check_versions(invitation: Invitation) -> None:
    for what, version in _own_versions().items():
        if version != invitation.versions[what]:
            raise FarandoleError(
                f"{socket.gethostname()} has {what} {version}, and the driver has {invitation.versions[what]}; install "
                "the same on all nodes."
            )


def _lent(lent: ExitStack, invitation: Invitation, commits: CommitTarget) -> dict[str, str]:
    """The variable by which ranks read a file in the memory of this process."""
    descriptor = commits.to_file(invitation.endpoint, invitation.key)
    lent.callback(os.close, descriptor)
    return {task_environment.COMMIT_TARGET: f"/proc/{os.getpid()}/fd/{descriptor}"}


def _connected(invitation: Invitation, about: Mapping[str, object]) -> socket.socket:
    where, host = "{}:{}".format(*invitation.endpoint), socket.gethostname()
    try:
        connection = connect(invitation.endpoint, invitation.key, environment.silence_timeout_s(), _CONNECT_SECONDS)
        say(connection, "task", **about)
        return connection
    except (ProofError, FrameError) as error:
        raise FarandoleError(f"the driver at {where} refuses {host}: {error}.") from error
    except OSError as error:
        raise FarandoleError(
            f"{host} cannot connect to the driver at {where} ({error}); allow connections from executors to the "
            "driver, or name an address of the driver that they can reach."
        ) from error


def _run_agent(connection: socket.socket, secret: bytes, around: dict[str, str]) -> None:
    """Run the agent to its end. An exception that comes meanwhile, as in a task that is cancelled, ends it."""
    secret_reader, secret_writer = os.pipe()
    with open(secret_writer, "wb") as writer:
        writer.write(secret)
    args = [sys.executable, "-m", "farandole.launch.agent.host_agent", "-1", str(os.getpid()), str(secret_reader)]
    with open(secret_reader, "rb"):
        agent = subprocess.Popen(
            args,
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            env=around,
            pass_fds=[secret_reader],
            start_new_session=True,
        )
    connection.close()  # the agent's end is the connection's end
    try:
        agent.wait()
    finally:
        if agent.poll() is None:
            agent.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(_END_SECONDS)
            agent.kill()
            agent.wait()
