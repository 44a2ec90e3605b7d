"""Job files in RiseML's form -> a plan of workers and lines. Pure, but for `read`.

    project: name
    train:
      framework: tensorflow
      tensorflow:
        version: "2.13"
        horovod: {workers: {count: 32, processes: 4}}    # or workers: 32; or below distributed:
      resources: {gpus: 4, cpus: 8, mem: 32GiB}          # of each worker
      parameters: {lr: 0.1}                              # {{lr}} in the lines, LR in the environment
      run: [python prepare.py, "python train.py --lr {{lr}}"]

train.workers may replace horovod.workers. Farandole never installs anything, and it starts one job, not a search for
parameters: the keys for these have no effect, and a note tells what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from farandole.launch import files
from farandole.launch.hosts import MAX_RANKS
from farandole.launch.messages import did_you_mean, shown
from farandole.launch.spec import SpecError

MAX_FILE_BYTES = 256 << 10  # PyYAML reads so much in about 3 s
_LONGEST_LINE = (128 << 10) - 1  # bytes: Linux allows no longer argument
_MIB, _GIB = 1 << 20, 1 << 30
_LEAST_MIB = 512  # RiseML's own pages have mem: 4 for gigabytes, and mem: 4096

# framework -> the distributions of which one is installed
FRAMEWORKS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
    "pytorch": ("torch",),
    "mxnet": ("mxnet", "mxnet-cu112"),
    "keras": ("keras",),
}
_OF_IMAGES = "activate the environment that the ranks need before `farandole run`"
_WITHOUT_EFFECT = {
    "image": _OF_IMAGES,
    "install": "install packages before `farandole run`",
    "concurrency": "start one job for each value of a parameter",
    "tensorboard": "start `tensorboard --logdir DIR` beside the job",
}
_UNITS = {f"{letter}iB": 1 << 10 * power for power, letter in enumerate("KMGT", 1)}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate(("k", "M", "G", "T"), 1)}
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,9})?")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USE = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")
_ONE_VALUE = "write one value, and start one job for each"
_SIZE = re.compile(rf"(?P<number>[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?) ?(?P<unit>{'|'.join(_UNITS)})")


@dataclass(frozen=True)
class Resources:
    """The resources that each worker needs; None: not given in the file."""

    gpus: int = 0
    cpus: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class JobFile:
    """The content of a job file."""

    project: str
    framework: str  # "" where the file names none
    version: str  # of the framework, or how it begins; "" where any will do
    workers: int
    processes: int  # of each worker
    resources: Resources
    lines: tuple[str, ...]  # for sh -c; each is run by all ranks before the next; parameters are filled in
    origin: str = "--file"  # what messages begin with
    notes: tuple[str, ...] = field(default=(), compare=False)  # sentences about keys
    variables: Mapping[str, str] = field(default_factory=dict)  # of the parameters, in capitals

    @property
    def ranks(self) -> int:
        """Return the number of processes of the job."""
        return self.workers * self.processes


def read(path: Path) -> JobFile:
    """Return the file's content. Raises SpecError."""
    origin = f"--file {path}"
    return parse(files.read_text(path, origin, "job file", MAX_FILE_BYTES), origin)


def parse(text: str, origin: str) -> JobFile:
    """Parse the text of a job file. Raises SpecError."""
    content = files.parse_yaml(origin, lambda yaml: yaml.load(text, Loader=_loader(yaml)))
    if content is None:
        raise SpecError(f"{origin} is empty; write project: NAME, and train: with run: below it.")
    top = _Entry(content, "", origin, 1).fields(("project", "train"))
    project = _wanted(top, "project", origin).text()
    train = _wanted(top, "train", origin)
    fields = train.fields(
        ("framework", "workers", "resources", "run", "parameters", *FRAMEWORKS, *_WITHOUT_EFFECT),
    )
    notes: list[str] = []
    _note(fields, notes)
    values, searched = _parameters(fields.get("parameters"))
    notes += [f"{each.place}: {each.path} has no effect; {_ONE_VALUE}." for each in searched.values()]
    framework, section = _framework(fields)
    inner = section.fields(("version", "horovod", "distributed", "tensorboard")) if section else {}
    _note(inner, notes)
    resources = _resources(fields.get("resources"), notes)
    workers, processes = _workers(_only(fields.get("workers"), _of_horovod(inner)), resources.gpus)
    return JobFile(
        project,
        framework,
        inner["version"].text() if "version" in inner else "",
        workers,
        processes,
        resources,
        tuple(_filled(line, values, searched) for line in _lines(_wanted(fields, "run", train.place))),
        origin,
        tuple(notes),
        {name.upper(): value for name, value in values.items()},
    )


# ---- values ----------------------------------------------------------------------------------------------------------


class _Keys(dict[str, Any]):
    """A mapping of the file. `lines`: of each key, from 1."""

    lines: dict[str, int]


def _loader(yaml: Any) -> Any:
    """Return a loader that keeps all scalars as text: 1.10 is not 1.1. Tags other than YAML's own are errors."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

        def construct_yaml_map(self, node: Any) -> Iterator[_Keys]:
            keys = _Keys()
            keys.lines = {}
            yield keys
            for key, value in node.value:
                name = self.construct_object(key, deep=True)
                if not isinstance(name, str) or name in keys:
                    what = f"{name} is listed twice" if isinstance(name, str) else "a key has several values"
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
                keys[name], keys.lines[name] = self.construct_object(value, deep=True), key.start_mark.line + 1

    Loader.add_constructor("tag:yaml.org,2002:map", Loader.construct_yaml_map)
    return Loader


@dataclass(frozen=True)
class _Entry:
    """One value of the file, with the keys that lead to it."""

    value: Any  # a text, a list, or _Keys
    path: str  # train.resources.gpus; "" for the whole file
    origin: str  # what messages begin with: --file job.yml
    line: int  # of its key, from 1

    @property
    def place(self) -> str:
        """`--file job.yml, line 3`."""
        return f"{self.origin}, line {self.line}"

    def error(self, text: str) -> SpecError:
        """Return an error that begins with the place and the keys."""
        return SpecError(f"{self.place}: {f'{self.path} ' if self.path else ''}{text}")

    def wants(self, wanted: str) -> SpecError:
        """Return the error for a value of another type."""
        found = "keys with values" if isinstance(self.value, _Keys) else "a list"
        if isinstance(self.value, str):
            found = shown(self.value) if self.value else "nothing"
        return self.error(f"must be {wanted}, not {found}.")

    def fields(self, known: Collection[str] | None) -> dict[str, _Entry]:
        """Return the values of a mapping. Only the known keys are allowed; None: any key. Raises SpecError."""
        if not isinstance(self.value, _Keys):
            raise self.wants("keys with values")
        found = {}
        for name, value in self.value.items():
            entry = _Entry(value, f"{self.path}.{name}" if self.path else name, self.origin, self.value.lines[name])
            if known is not None and name not in known:
                near = did_you_mean(name, known) or f"; known are {', '.join(known)}."
                inside = f"{self.path} has" if self.path else "there is"
                raise SpecError(f"{entry.place}: {inside} an unknown key, {shown(name)}{near}")
            found[name] = entry
        return found

    def text(self) -> str:
        """Return the value as a text that is not empty and fits into a program's arguments."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wants("a text")
        if "\0" in self.value or (
            not self.value.isprintable() and any("\ud800" <= each <= "\udfff" for each in self.value)
        ):
            raise self.error("has a character that no argument of a program can hold.")
        return self.value.strip()

    def number(self) -> float:
        """A number from 0 on."""
        if not isinstance(self.value, str) or not _NUMBER.fullmatch(self.value):
            raise self.wants("a number from 0 on")
        return float(self.value)

    def whole(self, least: int) -> int:
        """A whole number, at least `least`."""
        if not isinstance(self.value, str) or not _WHOLE.fullmatch(self.value) or int(self.value) < least:
            raise self.wants(f"a whole number from {least} on")
        return int(self.value)

    def items(self) -> list[_Entry]:
        """Return the values of a list; any other value counts as a list of one."""
        if not isinstance(self.value, list):
            return [self]
        path = f"{self.path}, item"
        return [_Entry(each, f"{path} {number},", self.origin, self.line) for number, each in enumerate(self.value, 1)]


def _wanted(fields: dict[str, _Entry], name: str, place: str) -> _Entry:
    if name not in fields:
        raise SpecError(f"{place}: {name} is missing.")
    return fields[name]


def _note(fields: dict[str, _Entry], notes: list[str]) -> None:
    for name, entry in fields.items():
        if name in _WITHOUT_EFFECT:
            notes.append(f"{entry.place}: {entry.path} has no effect; {_WITHOUT_EFFECT[name]}.")


def _framework(fields: dict[str, _Entry]) -> tuple[str, _Entry | None]:
    """Return the name of the framework, and its section."""
    name = ""
    if "framework" in fields:
        name = fields["framework"].text()
        if name not in FRAMEWORKS:
            raise fields["framework"].wants(f"one of {', '.join(FRAMEWORKS)}")
    for other in FRAMEWORKS:
        if other in fields and other != name:
            which = f"framework is {name}" if name else "there is no framework"
            raise fields[other].error(f"needs `framework: {other}` beside it, but {which}.")
    return name, fields.get(name)


def _of_horovod(section: dict[str, _Entry]) -> _Entry | None:
    """The workers of a framework's section, in either nesting."""
    older = None
    if "distributed" in section:
        distributed = section["distributed"].fields(("horovod", "ps", "worker", "master"))
        for name in ("ps", "worker", "master"):
            if name in distributed:
                raise distributed[name].error(
                    "belongs to parameter servers, which Farandole does not have; write horovod: ..."
                )
        older = distributed.get("horovod")
    entry = _only(section.get("horovod"), older)
    return None if entry is None else _wanted(entry.fields(("workers",)), "workers", entry.place)


def _only(first: _Entry | None, second: _Entry | None) -> _Entry | None:
    if first is not None and second is not None:
        raise second.error(f"says the same as {first.path} in line {first.line}; leave one out.")
    return first or second


def _workers(entry: _Entry | None, gpus: int) -> tuple[int, int]:
    """Return the number of workers, and the number of processes of each worker."""
    if entry is None:
        return 1, 1
    processes = max(1, gpus)
    if isinstance(entry.value, _Keys):
        fields = entry.fields(("count", "processes"))
        count = _wanted(fields, "count", entry.place).whole(1)
        processes = fields["processes"].whole(1) if "processes" in fields else processes
    else:
        count = entry.whole(1)
    if count * processes > MAX_RANKS:
        raise entry.error(f"asks for {count * processes} processes, more than the {MAX_RANKS} that a job may have.")
    return count, processes


def _resources(entry: _Entry | None, notes: list[str]) -> Resources:
    fields = {} if entry is None else entry.fields(("gpus", "cpus", "mem"))
    return Resources(
        fields["gpus"].whole(0) if "gpus" in fields else 0,
        fields["cpus"].number() if "cpus" in fields else None,
        _memory(fields["mem"], notes) if "mem" in fields else None,
    )


def _memory(entry: _Entry, notes: list[str]) -> int:
    """`4GiB` -> bytes. A bare number is in MiB from 512 on, else in GiB, as RiseML's pages have both."""
    if isinstance(entry.value, str) and _NUMBER.fullmatch(entry.value):
        number = entry.number()
        unit, size = ("MiB", _MIB) if number >= _LEAST_MIB else ("GiB", _GIB)
        notes.append(f"{entry.place}: {entry.path} is taken as {number:.12g}{unit}; write the unit.")
        return int(number * size)
    found = _SIZE.fullmatch(entry.text())
    if found is None:
        raise entry.wants("a size such as 32GiB")
    return int(float(found["number"]) * _UNITS[found["unit"]])


def _lines(entry: _Entry) -> tuple[str, ...]:
    entries = entry.items()
    if not entries:
        raise entry.wants("a line, or a list of lines")
    for each in entries:
        if len(each.text().encode()) > _LONGEST_LINE:
            raise each.error(f"has more than {_LONGEST_LINE} bytes, the most that Linux takes; write a script.")
    return tuple(each.text() for each in entries)


# ---- parameters ------------------------------------------------------------------------------------------------------


def _parameters(entry: _Entry | None) -> tuple[dict[str, str], dict[str, _Entry]]:
    """Return the parameters with one value, which fill {{name}} in the lines, and those with several values."""
    values: dict[str, str] = {}
    searched: dict[str, _Entry] = {}
    names: dict[str, _Entry] = {}
    for name, each in ({} if entry is None else entry.fields(None)).items():
        if not _NAME.fullmatch(name) or name.upper().startswith("FARANDOLE_"):
            raise SpecError(f"{each.place}: {each.path} becomes a variable: name it by letters, digits and _.")
        if (other := names.setdefault(name.upper(), each)) is not each:
            raise each.error(f"is the variable {name.upper()}, as is {other.path} in line {other.line}; rename one.")
        choices = each.items()
        if len(choices) == 1 and not isinstance(choices[0].value, _Keys):
            values[name] = choices[0].text()
        else:
            searched[name] = each
    return values, searched


def _filled(line: str, values: Mapping[str, str], searched: Mapping[str, _Entry]) -> str:
    """Replace {{name}} in the line by values; unknown names stay. Raises SpecError for a parameter with many values."""

    def value_of(use: re.Match[str]) -> str:
        if (entry := searched.get(use[1])) is not None:
            raise entry.error(f"has several values, but a job needs one for {use[0]}; {_ONE_VALUE}.")
        return values.get(use[1], use[0])

    return _USE.sub(value_of, line)
