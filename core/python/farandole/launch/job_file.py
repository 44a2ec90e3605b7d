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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from farandole.launch import files, parameters
from farandole.launch.hosts import MAX_RANKS
from farandole.launch.yaml_nodes import Entry

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
_SIZE = re.compile(rf"(?P<number>[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?) ?(?P<unit>{'|'.join(_UNITS)})")


@dataclass(frozen=True)
class Resources:
    """The needs of each worker; None: the file does not say."""

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
        """Number of processes of the job."""
        return self.workers * self.processes


def read(path: Path) -> JobFile:
    """The file's content. Raises FileError."""
    origin = f"--file {path}"
    return parse(files.read_text(path, origin, "job file", MAX_FILE_BYTES), origin)


def parse(text: str, origin: str) -> JobFile:
    """The content of this text. Raises FileError."""
    node = files.parse_yaml(origin, lambda yaml: yaml.compose(text, Loader=yaml.SafeLoader))
    if node is None:
        raise files.FileError(f"{origin} is empty; write project: NAME, and train: with run: below it.")
    top = Entry(node, "", origin, 1).fields(("project", "train"))
    project = _wanted(top, "project", origin).text()
    train = _wanted(top, "train", origin)
    fields = train.fields(
        ("framework", "workers", "resources", "run", "parameters", *FRAMEWORKS, *_WITHOUT_EFFECT),
    )
    notes: list[str] = []
    _note(fields, notes)
    given = parameters.read(fields.get("parameters"))
    notes += given.notes
    framework, section = _framework(fields)
    inner = section.fields(("version", "horovod", "distributed", "tensorboard")) if section else {}
    _note(inner, notes)
    resources = _resources(fields.get("resources"), notes)
    workers, processes = _workers(_only(fields.get("workers"), _of_horovod(inner)), resources.gpus)
    return JobFile(
        project,
        framework,
        inner["version"].spelling() if "version" in inner else "",
        workers,
        processes,
        resources,
        tuple(map(given.filled, _lines(_wanted(fields, "run", train.place)))),
        origin,
        tuple(notes),
        given.variables,
    )


def _wanted(fields: dict[str, Entry], name: str, place: str) -> Entry:
    if name not in fields:
        raise files.FileError(f"{place}: {name} is missing.")
    return fields[name]


def _note(fields: dict[str, Entry], notes: list[str]) -> None:
    for name, entry in fields.items():
        if name in _WITHOUT_EFFECT:
            notes.append(f"{entry.place}: {entry.path} has no effect; {_WITHOUT_EFFECT[name]}.")


def _framework(fields: dict[str, Entry]) -> tuple[str, Entry | None]:
    """The name of the framework, and its section."""
    name = ""
    if "framework" in fields:
        name = fields["framework"].text()
        if name not in FRAMEWORKS:
            raise fields["framework"].wants(f"one of {', '.join(FRAMEWORKS)}")
    for other in FRAMEWORKS:
        if other in fields and other != name:
            said = f"framework is {name}" if name else "there is no framework"
            raise fields[other].error(f"needs `framework: {other}` beside it, but {said}.")
    return name, fields.get(name)


def _of_horovod(section: dict[str, Entry]) -> Entry | None:
    """The workers of a framework's section, in either nesting."""
    older = None
    if "distributed" in section:
        distributed = section["distributed"].fields(("horovod", "ps", "worker", "master"))
        for name in ("ps", "worker", "master"):
            if name in distributed:
                raise distributed[name].error("belongs to parameter servers, which are not here; write horovod: ...")
        older = distributed.get("horovod")
    entry = _only(section.get("horovod"), older)
    return None if entry is None else _wanted(entry.fields(("workers",)), "workers", entry.place)


def _only(first: Entry | None, second: Entry | None) -> Entry | None:
    if first is not None and second is not None:
        raise second.error(f"says the same as {first.path} in line {first.line}; leave one out.")
    return first or second


def _workers(entry: Entry | None, gpus: int) -> tuple[int, int]:
    """How many workers, and how many processes each."""
    if entry is None:
        return 1, 1
    processes = max(1, gpus)
    if entry.is_mapping:
        fields = entry.fields(("count", "processes"))
        count = _wanted(fields, "count", entry.place).whole(1)
        processes = fields["processes"].whole(1) if "processes" in fields else processes
    else:
        count = entry.whole(1)
    if count * processes > MAX_RANKS:
        raise entry.error(f"asks for {count * processes} processes, more than the {MAX_RANKS} that a job may have.")
    return count, processes


def _resources(entry: Entry | None, notes: list[str]) -> Resources:
    fields = {} if entry is None else entry.fields(("gpus", "cpus", "mem"))
    return Resources(
        fields["gpus"].whole(0) if "gpus" in fields else 0,
        fields["cpus"].number() if "cpus" in fields else None,
        _memory(fields["mem"], notes) if "mem" in fields else None,
    )


def _memory(entry: Entry, notes: list[str]) -> int:
    """`4GiB` -> bytes. A bare number is in MiB from 512 on, else in GiB, as RiseML's pages have both."""
    if entry.is_number:
        number = entry.number()
        unit, size = ("MiB", _MIB) if number >= _LEAST_MIB else ("GiB", _GIB)
        notes.append(f"{entry.place}: {entry.path} is taken as {number:.12g}{unit}; write the unit.")
        return int(number * size)
    found = _SIZE.fullmatch(entry.spelling())
    if found is None:
        raise entry.wants("a size such as 32GiB")
    return int(float(found["number"]) * _UNITS[found["unit"]])


def _lines(entry: Entry) -> tuple[str, ...]:
    entries: Collection[Entry] = list(entry.items()) if entry.is_list else [entry]
    if not entries:
        raise entry.wants("a line, or a list of lines")
    for each in entries:
        if len(each.text().encode()) > _LONGEST_LINE:
            raise each.error(f"has more than {_LONGEST_LINE} bytes, the most that Linux takes; write a script.")
    return tuple(each.text().strip() for each in entries)
