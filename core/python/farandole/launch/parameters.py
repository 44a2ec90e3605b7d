"""The parameters of a job file, of which each is one value -> {{name}} in the lines, and variables in capitals. Pure.

parameters: {lr: 0.1, epochs: [3]}                 one experiment: LR=0.1, EPOCHS=3
parameters: {lr: [0.1, 0.01]}                      a search; Farandole starts one job
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from farandole.launch.files import FileError
from farandole.launch.yaml_nodes import Entry

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USE = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")
_ONE_VALUE = "write one value, and start one job for each"


@dataclass(frozen=True)
class Parameters:
    """The values of parameters by their names, and those that have several values."""

    values: Mapping[str, str] = field(default_factory=dict)
    searched: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """The values as variables of the environment."""
        return {name.upper(): value for name, value in self.values.items()}

    @property
    def notes(self) -> list[str]:
        """A sentence for each parameter that has several values."""
        return [f"{each.place}: {each.path} has no effect; {_ONE_VALUE}." for each in self.searched.values()]

    def filled(self, line: str) -> str:
        """The line with values in the place of {{name}}; names of no parameter stay. Raises FileError for a search."""

        def value_of(use: re.Match[str]) -> str:
            if (entry := self.searched.get(use[1])) is not None:
                raise entry.error(f"is to be searched, and a job has one value for {use[0]}; {_ONE_VALUE}.")
            return self.values.get(use[1], use[0])

        return _USE.sub(value_of, line)


def read(entry: Entry | None) -> Parameters:
    """The parameters of train.parameters. Raises FileError."""
    values: dict[str, str] = {}
    searched: dict[str, Entry] = {}
    names: dict[str, Entry] = {}
    for name, each in ({} if entry is None else entry.fields(None)).items():
        if not _NAME.fullmatch(name) or name.upper().startswith("FARANDOLE_"):
            raise FileError(f"{each.place}: {each.path} becomes a variable: name it by letters, digits and _.")
        if (other := names.setdefault(name.upper(), each)) is not each:
            raise each.error(f"is the variable {name.upper()}, as is {other.path} in line {other.line}; rename one.")
        choices: Sequence[Entry] = list(each.items()) if each.is_list else [each]
        if len(choices) == 1 and not choices[0].is_mapping:
            values[name] = choices[0].spelling()
        else:
            searched[name] = each
    return Parameters(values, searched)
