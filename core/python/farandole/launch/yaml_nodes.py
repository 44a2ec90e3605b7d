"""Values of a YAML file with their lines, each read as one type. Pure.

Nodes are judged as PyYAML composes them. No object is made of them, so a tag such as !!python/object has no effect, and
an alias of an alias costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from farandole.launch.files import FileError
from farandole.launch.messages import did_you_mean, shown

_TAG = "tag:yaml.org,2002:"
_TYPES = {"str": "text", "int": "number", "float": "number"}
_QUOTABLE = {f"{_TAG}{name}" for name in ("bool", "int", "float", "timestamp")}  # such as true, a command, too
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,9})?")  # YAML has more: 0x10, 1_000, 1:30
_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True)
class Entry:
    """One value of the file, with the keys that lead to it."""

    node: Any  # of PyYAML
    path: str  # train.resources.gpus; "" for the whole file
    origin: str  # what messages begin with: --file job.yml
    line: int  # of its key, from 1

    @property
    def place(self) -> str:
        """`--file job.yml, line 3`."""
        return f"{self.origin}, line {self.line}"

    def error(self, text: str) -> FileError:
        """The error that begins with the place and the keys."""
        return FileError(f"{self.place}: {f'{self.path} ' if self.path else ''}{text}")

    def wants(self, wanted: str) -> FileError:
        """The error for a value of another type."""
        return self.error(f"must be {wanted}, not {self._shown()}.")

    def fields(self, known: Collection[str] | None) -> dict[str, Entry]:
        """The values of a mapping, which may have the known keys, or any for None, each once. Raises FileError."""
        if not self.is_mapping:
            raise self.wants("keys with values")
        found: dict[str, Entry] = {}
        for key, value in self.node.value:
            name, line = str(key.value) if _kind(key) else "", key.start_mark.line + 1
            entry = Entry(value, f"{self.path}.{name}" if self.path else name, self.origin, line)
            if known is not None and name not in known:
                raise self._unknown(key, line, known)
            if name in found:
                raise entry.error(f"stands there twice, first in line {found[name].line}.")
            found[name] = entry
        return found

    def _unknown(self, key: Any, line: int, known: Collection[str]) -> FileError:
        word = str(key.value) if isinstance(key.value, str) else "a key of several values"
        near = did_you_mean(word, known) or f"; known are {', '.join(known)}."
        inside = f"{self.path} has" if self.path else "there is"
        return FileError(f"{self.origin}, line {line}: {inside} an unknown key, {shown(word)}{near}")

    def text(self) -> str:
        """A text that is not empty and fits into the arguments of a program."""
        if self.node.tag in _QUOTABLE:
            raise self.wants("a text (write it in quotes)")
        if _kind(self.node) != "text" or not self.node.value.strip():
            raise self.wants("a text")
        value = str(self.node.value)
        if "\0" in value or not _is_unicode(value):
            raise self.error("has a character that no argument of a program can hold.")
        return value

    def spelling(self) -> str:
        """A text or a number, as it is spelt: 1.10 is not 1.1."""
        if not _kind(self.node) or not self.node.value.strip():
            raise self.wants("a text")
        return str(self.node.value).strip()

    def number(self) -> float:
        """A number from 0 on."""
        if _kind(self.node) != "number" or not _NUMBER.fullmatch(self.node.value):
            raise self.wants("a number from 0 on")
        return float(self.node.value)

    def whole(self, least: int) -> int:
        """A whole number, at least `least`."""
        if _kind(self.node) != "number" or not _WHOLE.fullmatch(self.node.value) or int(self.node.value) < least:
            raise self.wants(f"a whole number from {least} on")
        return int(self.node.value)

    def items(self) -> Iterator[Entry]:
        """The values of a list."""
        for number, node in enumerate(self.node.value, 1):
            yield Entry(node, f"{self.path}, item {number},", self.origin, node.start_mark.line + 1)

    @property
    def is_mapping(self) -> bool:
        """Returns whether the value is plain keys with values."""
        return bool(self.node.tag == f"{_TAG}map")

    @property
    def is_list(self) -> bool:
        """Returns whether the value is a plain list."""
        return bool(self.node.tag == f"{_TAG}seq")

    @property
    def is_number(self) -> bool:
        """Returns whether the value is a number rather than a text."""
        return _kind(self.node) == "number"

    def _shown(self) -> str:
        tag = str(self.node.tag)
        if not tag.startswith(_TAG) or "/" in tag:
            return f"a value with the tag {shown(tag.removeprefix(_TAG))}"
        if not isinstance(self.node.value, str):
            return "keys with values" if self.is_mapping else "a list"
        return shown(self.node.value) if self.node.value else "nothing"


def _kind(node: Any) -> str:
    """`text` or `number`; "" for another value."""
    return _TYPES.get(str(node.tag).removeprefix(_TAG), "") if isinstance(node.value, str) else ""


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= each <= "\udfff" for each in text)
