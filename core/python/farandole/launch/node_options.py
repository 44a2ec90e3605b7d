"""The options of `farandole run --nnodes`: this node's number, the meeting point, the key."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from farandole.launch.hosts import MAX_RANKS, bracketed, check_host, parse_count
from farandole.launch.messages import shown
from farandole.launch.spec import JobSpec, SpecError

LEAST_KEY_BYTES = 32
_MOST_KEY_BYTES = 4096
_NEW_KEY = f"make one with head -c {LEAST_KEY_BYTES} /dev/urandom, and give all nodes a copy"
_PORT = re.compile(r"[0-9]{1,5}")
_START_SECONDS = 120.0  # as the core's
_NAMES = ("node_rank", "rendezvous", "key_file")


@dataclass(frozen=True)
class NodeOptions:
    """One node of a job. `slots`: its ranks; other nodes may have more or fewer."""

    count: int
    number: int
    host: str  # of node 0
    port: int
    key: bytes = field(repr=False)
    slots: int
    wait_s: float  # for the other nodes
    interfaces: tuple[str, ...] = ()
    silence_s: float = 4.0  # of a node until it counts as lost

    @property
    def endpoint(self) -> str:
        """`host:port`, for messages."""
        return f"{bracketed(self.host)}:{self.port}"


def node_options(
    spec: JobSpec, slots_here: Callable[[], int], start_timeout: str, interfaces: tuple[str, ...]
) -> NodeOptions | None:
    """Check the options that concern nodes; None where there are none. Raises SpecError.

    Args:
        spec: as its user gave it.
        slots_here: the ranks of `--nproc-per-node auto`.
        start_timeout: FARANDOLE_START_TIMEOUT, "" if unset; counts less than --start-timeout.
        interfaces: of --network-interfaces.
    """
    if spec.nodes.nnodes is None:
        for name in (*_NAMES, "nproc_per_node"):
            if getattr(spec.nodes, name) is not None:
                raise SpecError(
                    f"{_typed(name)} is for one of several nodes; give --nnodes, the number of them, too.", "nnodes"
                )
        return None
    _check_alone(spec)
    count = parse_count(spec.nodes.nnodes, "--nnodes")
    host, port = rendezvous(str(spec.nodes.rendezvous))
    return NodeOptions(
        count,
        _number(str(spec.nodes.node_rank), count),
        host,
        port,
        _key(Path(str(spec.nodes.key_file))),
        min(slots_here(), MAX_RANKS)
        if spec.nodes.nproc_per_node == "auto"
        else parse_count(spec.nodes.nproc_per_node or "1", "--nproc-per-node"),
        _wait_s(spec.ranks.start_timeout, start_timeout),
        interfaces,
    )


def _typed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_alone(spec: JobSpec) -> None:
    missing = [_typed(name) for name in _NAMES if getattr(spec.nodes, name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise SpecError(
            f"--nnodes needs {', '.join(map(_typed, _NAMES))}; {', '.join(missing)} {verb} missing.", "nnodes"
        )
    for name, given in (("-H", spec.where.hosts), ("--hostfile", spec.where.hostfile), ("--file", spec.ranks.file)):
        if given is not None:
            raise SpecError(
                f"give one of {name} and --nnodes: with --nnodes each node starts ranks of its own only.", "nnodes"
            )
    if spec.ranks.num_proc is not None:
        raise SpecError(
            "-np counts the ranks of all nodes; with --nnodes, give those of this one: --nproc-per-node.", "nnodes"
        )


def _number(text: str, count: int) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) >= count:
        least = "0" if count == 1 else f"from 0 to {count - 1}"
        raise SpecError(f"--node-rank must be {least} with --nnodes {count}, not {shown(text)}.", "node_rank")
    return int(text)


def rendezvous(text: str) -> tuple[str, int]:
    """`train-0.train:29500` or `[fd00::1]:29500` -> host and port. Raises SpecError."""
    host, colon, port = text.rpartition(":")
    wanted = f"--rendezvous wants node 0's host and port, as in train-0.train:29500, not {shown(text)}."
    if not colon or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535 or (":" in host and host[0] != "["):
        raise SpecError(wanted)
    try:
        checked = check_host(host)
    except SpecError as error:
        raise SpecError(f"--rendezvous: {error}", "rendezvous") from error
    if "@" in checked:
        raise SpecError(wanted)
    return checked, int(port)


def _key(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            key = file.read(_MOST_KEY_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"--key-file {path} cannot be read: {why}; {_NEW_KEY}.", "key_file") from error
    if not LEAST_KEY_BYTES <= len(key) <= _MOST_KEY_BYTES:
        size = f"more than {_MOST_KEY_BYTES}" if len(key) > _MOST_KEY_BYTES else str(len(key))
        raise SpecError(
            f"--key-file {path} has {size} bytes, not {LEAST_KEY_BYTES} to {_MOST_KEY_BYTES}; {_NEW_KEY}.", "key_file"
        )
    return key


def _wait_s(typed: float | None, setting: str) -> float:
    if typed is not None:
        return typed
    try:
        return float(setting or _START_SECONDS)
    except ValueError:
        return _START_SECONDS  # the ranks refuse the setting with a sentence of their own
