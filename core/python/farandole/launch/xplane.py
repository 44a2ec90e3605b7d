"""Profiles of TensorFlow, as files NAME.xplane.pb: spans by process and thread.

They are messages of protobuf, of which the few fields below are read here: the package protobuf would need
descriptions of them, which come with TensorFlow, and this has to work where that is not installed.

    XSpace  planes=1 hostnames=4
    XPlane  name=2 lines=3 event_metadata=4 stat_metadata=5 (maps: key=1 value=2) stats=6
    XLine   name=2 timestamp_ns=3 events=4 display_name=11
    XEvent  metadata_id=1 offset_ps=2 duration_ps=3        XEventMetadata  name=2 display_name=4
    XStat   metadata_id=1 uint64_value=3 int64_value=4     XStatMetadata   name=2
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # kinds of fields
_START = "profile_start_time"  # of the plane below, in nanoseconds of the time of day
_ENVIRONMENT = "Task Environment"
HOST = "/host:"  # begins the names of planes of the program itself


class XPlaneError(ValueError):
    """The bytes are no such profile."""


@dataclass(frozen=True)
class Event:
    """A span. Times are picoseconds, of the time of day; no float has so many digits."""

    plane: str
    line: str
    name: str
    begin_ps: int
    duration_ps: int


class _Message:
    """The fields of a message by number. Raises XPlaneError."""

    def __init__(self, data: memoryview) -> None:
        self._numbers: dict[int, int] = {}
        self._parts: dict[int, list[memoryview]] = defaultdict(list)
        try:
            self._read(data)
        except IndexError as error:
            raise XPlaneError("it is cut off") from error

    def _read(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            key, at = _varint(data, at)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                self._numbers[number], at = _varint(data, at)
                continue
            if kind not in (_EIGHT_BYTES, _BYTES, _FOUR_BYTES):
                raise XPlaneError(f"it has a field of the kind {kind}")
            size, at = _varint(data, at) if kind == _BYTES else (8 if kind == _EIGHT_BYTES else 4, at)
            if at + size > len(data):
                raise XPlaneError("it is cut off")
            self._parts[number].append(data[at : at + size])
            at += size

    def number(self, field: int) -> int:
        return self._numbers.get(field, 0)

    def text(self, field: int) -> str:
        parts = self._parts.get(field)
        return bytes(parts[-1]).decode(errors="replace") if parts else ""

    def messages(self, field: int) -> Iterator[_Message]:
        return map(_Message, self._parts.get(field, ()))

    def named(self, field: int) -> dict[int, str]:
        """A map of messages, by their names."""
        entries = ((each.number(1), each.messages(2)) for each in self.messages(field))
        return {key: value.text(4) or value.text(2) for key, values in entries for value in values}


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise XPlaneError("it has a number without end")


def events(data: bytes) -> Iterator[Event]:
    """The spans of a profile. Raises XPlaneError, also for one that does not tell when it began."""
    planes = list(_Message(memoryview(data)).messages(1))
    starts = {text: number for plane in planes for text, number in _stats(plane)}
    if _START not in starts:
        raise XPlaneError(f"it has no {_START}, which newer versions of TensorFlow write")
    for plane in planes:
        names = plane.named(4)
        for line in plane.messages(3):
            from_ns, title = starts[_START] + line.number(3), line.text(11) or line.text(2)
            for event in line.messages(4):
                name, begin_ps = names.get(event.number(1), ""), from_ns * 1000 + event.number(2)
                yield Event(plane.text(2), title, name, begin_ps, event.number(3))


def _stats(plane: _Message) -> Iterator[tuple[str, int]]:
    if plane.text(2) == _ENVIRONMENT:
        names = plane.named(5)
        for stat in plane.messages(6):
            yield names.get(stat.number(1), ""), stat.number(3) or stat.number(4)
