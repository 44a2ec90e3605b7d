"""The description of a job: one tree of frozen dataclasses, which the command line, `farandole.run` and others make.

Each leaf of `JobSpec` is an option of `farandole run`. Its `option(...)` has all that the command line, files of
options and `--help` need, so a new option is one field. Types and bounds are checked here, however a spec is made; what
depends on the machine or on other options is checked where the job is planned.
"""
# ruff: noqa: RUF009  (`option` makes a field)

from __future__ import annotations

import dataclasses
import json
import operator
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

_MOST_NUMBER = 1e15
Count = NewType("Count", str)
"""A whole number, or a word such as auto."""
_KINDS = {bool: "true or false", float: "a number", Path: "the name of a file", str: "a text"}
_KINDS[Count] = "a whole number or a text"


class SpecError(ValueError):
    """A value that a job cannot have. The message is a sentence for the user; `field` names the leaf, if it is one.

    `exit_code`: of the launcher, by default that of a wrong option.
    """

    def __init__(self, sentence: str, field: str = "", has_wrong_type: bool = False, exit_code: int = 2) -> None:
        super().__init__(sentence)
        self.field, self.has_wrong_type, self.exit_code = field, has_wrong_type, exit_code


def option(
    help_text: str,
    metavar: str = "",
    names: Sequence[str] = (),
    default: object = None,
    least: int | None = None,
    most: int | None = None,
) -> Any:
    """A leaf of the tree.

    Args:
        help_text: for `--help`.
        metavar: the word for the value there.
        names: on the command line; by default that of the field, with dashes.
        default: the value where nothing is given.
        least: the smallest whole number.
        most: the largest.
    """
    about = {"help": help_text, "metavar": metavar, "least": least, "most": most}
    return field(default=default, metadata={"names": tuple(names), "about": about})


@dataclass(frozen=True)
class Ranks:
    """Ranks."""

    num_proc: Count | None = option(
        "Number of ranks; by default, and with auto, all slots of the hosts.", "N", ("-n", "-np", "--num-proc")
    )
    env: tuple[str, ...] = option(
        "Set a variable for the ranks of all hosts, or pass the launcher's value on; repeatable.",
        "NAME[=VALUE]",
        ("-x", "--env"),
        default=(),
    )
    module: bool = option("COMMAND is a Python module, as in python -m.", names=("-m",), default=False)
    file: Path | None = option("Run the job of this file, in RiseML's form, not COMMAND.", "FILE", ("-f", "--file"))
    bind_to: Literal["core", "none"] = option("Bind ranks to cores.", default="none")
    start_timeout: float | None = option("How long the ranks wait for each other at the start.", "SECONDS")
    backend: str | None = option("Collective back ends in order of preference, as FARANDOLE_BACKEND.", "NAME,...")


@dataclass(frozen=True)
class Where:
    """Hosts."""

    hosts: str | None = option("Where to run: localhost:4 or h1:4,h2:4.", "HOST:SLOTS,...", ("-H", "--hosts"))
    hostfile: Path | None = option("Where to run: lines such as h1 slots=4.", "FILE", ("-hostfile", "--hostfile"))
    ssh_port: int | None = option("The port of ssh on other hosts.", "PORT", ("-p", "--ssh-port"), least=1, most=65535)
    ssh_identity_file: Path | None = option("The key for ssh to other hosts.", "FILE", ("-i", "--ssh-identity-file"))
    python: str | None = option("The Python of other hosts; by default as on this one.", "PATH")
    network_interfaces: str | None = option("Interfaces that hosts use between them.", "NAME,...")


@dataclass(frozen=True)
class Nodes:
    """Nodes that start themselves"""

    nnodes: Count | None = option("Number of nodes that each run this command, without ssh.", "N")
    node_rank: Count | None = option("This node's number, from 0.", "N")
    rendezvous: str | None = option("Where node 0 listens for the others.", "HOST:PORT")
    key_file: Path | None = option("At least 32 secret bytes, the same on all nodes.", "FILE")
    nproc_per_node: Count | None = option("Ranks of this node (1); auto: as -np auto.", "N")


@dataclass(frozen=True)
class ElasticJob:
    """Elastic jobs."""

    min_np: int | None = option(
        "Go on while N ranks are left; by default the number of ranks.", "N", ("--min-np", "--min-num-proc"), least=1
    )
    max_np: int | None = option(
        "Replace lost ranks, and start more where slots are free, up to N. Fewer than --min-np wait for them.",
        "N",
        ("--max-np", "--max-num-proc"),
        least=1,
    )
    host_discovery_script: str | None = option(
        "Command that prints the available hosts, in lines such as h1:4; polled once per second.", "COMMAND"
    )
    host_discovery_service: str | None = option(
        "Run on the addresses of this name, which may change, such as a headless Service of Kubernetes.", "NAME"
    )
    slots_per_host: int | None = option("Slots of hosts that are listed without a number (1).", "N", least=1)
    reset_limit: int | None = option("End the job once its ranks change more than N times.", "N", least=0)
    blacklist_cooldown_range: tuple[float, float] | None = option(
        "Seconds until a lost rank is replaced (1), doubled each time, up to the maximum (60).", "LEAST MOST"
    )
    elastic_timeout: float | None = option(
        "How long living ranks have to notice that one is lost, and too few ranks wait for more (600).", "SECONDS"
    )


@dataclass(frozen=True)
class Output:
    """Output"""

    prefix: bool = option("Begin each line with [rank] (default).", default=True)
    timestamp: bool = option("Begin each line with the time of day.", default=False)
    output_dir: Path | None = option("Also write the output of rank N to DIR/rank.N.log.", "DIR")
    verbose: bool = option("Report what is started, and when each rank ends.", default=False)


@dataclass(frozen=True)
class Observe:
    """Observing"""

    timeline_filename: str | None = option(
        "Record a timeline of each rank, in FILE with .rankN before its suffix; see `farandole timeline`.", "FILE"
    )
    timeline_mark_cycles: bool = option("Also mark which operations were negotiated together.", default=False)
    live: bool = option("Serve a page that shows the ranks of this host; prints its address.", default=False)
    live_port: int | None = option(
        "The page's port; implies --live. By default any free one.", "PORT", least=0, most=65535
    )


@dataclass(frozen=True)
class Metrics:
    """Monitoring"""

    metrics: int | None = option("Serve OpenMetrics of this host's ranks; 0: any port.", "PORT", least=0, most=65535)
    metrics_address: str | None = option("Address for --metrics; 127.0.0.1 by default.", "ADDRESS")
    metrics_key_file: Path | None = option("File with the secret that readers of --metrics must send.", "FILE")


@dataclass(frozen=True)
class JobSpec:
    """A job, as its user describes it. Leaves have different names, so `JobSpec.of` needs no groups.

    Example:
        >>> spec = JobSpec.of(["python", "train.py"], num_proc="4", hosts="h1:2,h2:2")
        >>> spec.where.hosts
        'h1:2,h2:2'
        >>> JobSpec.from_json(spec.to_json()) == spec
        True
    """

    command: tuple[str, ...] = ()
    ranks: Ranks = field(default_factory=Ranks)
    where: Where = field(default_factory=Where)
    nodes: Nodes = field(default_factory=Nodes)
    elastic: ElasticJob = field(default_factory=ElasticJob)
    output: Output = field(default_factory=Output)
    observe: Observe = field(default_factory=Observe)
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def of(cls, command: Sequence[str] = (), **values: object) -> JobSpec:
        """Make one of the values of leaves, by their names; None stands for the default. Raises SpecError."""
        if isinstance(command, str | bytes):  # would be taken for its letters
            raise SpecError(
                f'command must be a list of words, as in ["python", "train.py"], not {command!r:.60}.', "command"
            )
        by_group: dict[str, dict[str, object]] = {name: {} for name in groups()}
        for name, value in values.items():
            found = leaves_by_name().get(name)
            if found is None:
                raise SpecError(f"{name} is no field of a job; known are {', '.join(leaves_by_name())}.", name)
            if value is not None:
                by_group[found[0]][name] = found[1].fit(value)
        made: dict[str, Any] = {name: kind(**by_group[name]) for name, kind in groups().items()}
        return cls(tuple(map(str, command)), **made)

    def to_json(self) -> str:
        """The given values, by leaf."""
        values = {
            leaf.name: value
            for group, leaf in leaves_by_name().values()
            if (value := getattr(getattr(self, group), leaf.name)) != leaf.default
        }
        return json.dumps({"command": self.command, **values}, default=str)

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Read what `to_json` has written. Raises SpecError."""
        values: dict[str, Any] = json.loads(text)
        return cls.of(values.pop("command"), **values)


@dataclass(frozen=True)
class Leaf:
    """One option: its name, its type, and what the command line says of it."""

    name: str
    kind: Any  # bool, int, float, str, Path, a tuple of choices, or (kind, ...) of several values
    default: Any = None
    help: str = ""
    metavar: str = ""
    names: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None

    def fit(self, value: Any) -> Any:
        """The value in the type of this leaf. Raises SpecError for one that does not fit."""
        try:
            fitted = _fit(value, self.kind)
        except TypeError:
            raise SpecError(self._refusal(value), self.name, has_wrong_type=True) from None
        except (ValueError, OverflowError):
            raise SpecError(self._refusal(value), self.name) from None
        if (self.least is not None and fitted < self.least) or (self.most is not None and fitted > self.most):
            raise SpecError(self._refusal(value), self.name)
        return fitted

    def _refusal(self, value: Any) -> str:
        return f"{self.name} must be {self.wanted}, not {value!r:.60}."

    @property
    def wanted(self) -> str:
        """The valid values, for messages."""
        if self.kind is int:
            bounds = "" if self.least is None else f" of at least {self.least}"
            return f"a whole number{bounds if self.most is None else f' from {self.least} to {self.most}'}"
        if isinstance(self.kind, tuple) and self.kind[0] is float:
            return "two numbers, as in (1, 60)"
        if isinstance(self.kind, tuple):
            return "a list of texts" if self.kind[0] is str else f"one of {', '.join(self.kind)}"
        return _KINDS[self.kind]


def _fit(value: Any, kind: Any) -> Any:
    """Raises TypeError or ValueError."""
    if isinstance(kind, tuple):
        if isinstance(kind[0], str):  # choices
            return kind[kind.index(value)]
        if isinstance(value, str | bytes) or (kind[0] is float and len(value) != len(kind)):
            raise TypeError
        return tuple(_fit(each, kind[0]) for each in value)
    if kind is bool or isinstance(value, bool):
        if kind is not bool or not isinstance(value, bool):
            raise TypeError
        return value
    if kind is int:
        return operator.index(value)
    if kind is float:
        if not isinstance(value, int | float) or not -_MOST_NUMBER <= value <= _MOST_NUMBER:
            raise TypeError
        return float(value)
    if kind is Count and isinstance(value, int):
        value = str(value)
    text = str(value) if isinstance(value, Path) else value
    if not isinstance(text, str) or "\0" in text:
        raise TypeError
    return Path(text) if kind is Path else text


@cache
def groups() -> Mapping[str, type]:
    """The groups of the tree, by their names in it."""
    return {name: hint for name, hint in get_type_hints(JobSpec).items() if name != "command"}


def leaves(group: type) -> list[Leaf]:
    """The options of a group, in their order."""
    hints = get_type_hints(group)
    found = []
    for each in dataclasses.fields(group):
        names = each.metadata["names"] or (f"--{each.name.replace('_', '-')}",)
        found.append(Leaf(each.name, _kind(hints[each.name]), each.default, names=names, **each.metadata["about"]))
    return found


def _kind(hint: Any) -> Any:
    """`int | None` -> int, `Literal["a", "b"]` -> ("a", "b"), `tuple[str, ...]` -> (str,)."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) is tuple:
        return tuple(each for each in get_args(hint) if each is not Ellipsis)
    return hint


@cache
def leaves_by_name() -> Mapping[str, tuple[str, Leaf]]:
    """The group of each leaf, and the leaf."""
    return {leaf.name: (name, leaf) for name, group in groups().items() for leaf in leaves(group)}
