"""Profiles of frameworks as events of a timeline: PyTorch's and TensorFlow's, on the timeline's clock. Pure but `read`.

The timeline of each rank says which time of day its time 0 is by the clock of the rank's host, and profiles tell the
time of day by the same clock. So it does not matter by how much the clocks of hosts differ.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.launch import xplane
from farandole.launch.timeline import TimelineError

_TITLE = re.compile(r"rank (\d+) \((.*), pid (\d+)\)")  # see recording.begin in the core
_GIVEN = re.compile(r"(?:(\d+)=)?(.+)", re.DOTALL)
_GZIP = b"\x1f\x8b"
_OTHERS_FROM = 1_000_000  # numbers of processes of the trace that are no ranks, such as GPUs
_IDS_OF_RANK = 1 << 32
_FIRST_NS = 10**18  # a time of day: 2001


@dataclass(frozen=True)
class Place:
    """A rank of the timeline."""

    rank: int
    host: str
    pid: int
    zero_unix_ns: int  # the time of day of its host at the trace's time 0


def places(events: Iterable[str]) -> list[Place]:
    """The ranks that the events of a timeline describe."""
    titles: dict[int, tuple[str, int]] = {}
    found: dict[int, Place] = {}
    for text in events:
        if '"ph":"M"' not in text:
            continue
        event = json.loads(text)
        given, rank = event.get("args", {}), event.get("pid")
        title = _TITLE.match(str(given.get("name", "")))
        if title and rank not in titles:
            titles[rank] = title[2], int(title[3])
        if event.get("name") == "clock" and rank in titles and rank not in found:
            found[rank] = Place(rank, *titles[rank], int(given["zero_unix_ns"]))
    return list(found.values())


def read(given: Sequence[str], ranks: Sequence[Place]) -> Iterator[str]:
    """The events of profiles that were given as [RANK=]FILE. Raises TimelineError, OSError."""
    others: dict[tuple[int, object], int] = {}
    for each in given:
        named = _GIVEN.match(each)
        assert named is not None
        rank, path = named[1], Path(named[2])
        try:
            data = path.read_bytes()
            data = gzip.decompress(data) if data[:2] == _GZIP else data
            wanted = None if rank is None else int(rank)
            is_json = data.lstrip()[:1] == b"{"
            events = _of_torch(json.loads(data), ranks, wanted) if is_json else _of_tensorflow(data, ranks, wanted)
            yield from (json.dumps(event, separators=(",", ":")) for event in _numbered(events, others))
        except (ValueError, EOFError) as error:
            raise TimelineError(f"the profile {path} cannot be merged: {error}") from error


@dataclass(frozen=True)
class _Event:
    """An event of a profile, whose process is yet to be numbered."""

    rank: int
    process: object  # None: the rank itself
    fields: dict[str, Any]


def _numbered(events: Iterable[_Event], others: dict[tuple[int, object], int]) -> Iterator[dict[str, Any]]:
    """Ranks keep their numbers; other processes get numbers and names of their own."""
    for event in events:
        key, number = (event.rank, event.process), event.rank
        if event.process is not None:
            if key not in others:
                others[key] = _OTHERS_FROM + len(others)
                yield _name(others[key], f"{event.process} of rank {event.rank}")
            number = others[key]
        yield {**event.fields, "pid": number}


def _name(process: int, title: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": title}}


def _of_torch(trace: Any, ranks: Sequence[Place], wanted: int | None) -> Iterator[_Event]:
    """Of `torch.profiler`'s export_chrome_trace. Raises ValueError."""
    events = [each for each in trace.get("traceEvents", ()) if isinstance(each, dict) and "ph" in each]
    spans = Counter(each.get("pid") for each in events if each["ph"] == "X")
    if not spans:
        raise ValueError("it has no spans")
    host = trace.get("host_name")
    place = _place(ranks, wanted, [each for each in ranks if each.pid in spans and host in (None, each.host)])
    own = place.pid if place.pid in spans else spans.most_common(1)[0][0]
    base_ns = int(trace.get("baseTimeNanoseconds", 0))
    first_us = min(float(each["ts"]) for each in events if each["ph"] == "X")
    if base_ns + first_us * 1000 < _FIRST_NS:
        raise ValueError("it does not tell the time of day; of TensorFlow's profiles give the file .xplane.pb")
    for event in events:
        is_own = event.get("pid") == own
        if event["ph"] == "M" and str(event.get("name")).startswith("process_"):
            continue  # all have names of ours
        fields = {key: value for key, value in event.items() if key != "pid"}
        if "ts" in fields:
            fields["ts"] = round(float(fields["ts"]) + (base_ns - place.zero_unix_ns) / 1000, 3)
        if isinstance(fields.get("id"), int):  # else arrows lead to other ranks
            fields["id"] += _IDS_OF_RANK * (place.rank + 1)
        yield _Event(place.rank, None if is_own else _title(event.get("pid")), fields)


def _title(process: object) -> object:
    """PyTorch numbers GPUs; other processes have words."""
    return f"GPU {process}" if isinstance(process, int) else process or "profiler"


def _of_tensorflow(data: bytes, ranks: Sequence[Place], wanted: int | None) -> Iterator[_Event]:
    """Of a file .xplane.pb. Raises ValueError."""
    place = _place(ranks, wanted, ranks if len(ranks) == 1 else [])
    threads: dict[tuple[str, str], int] = {}
    for event in xplane.events(data):
        process = None if event.plane.startswith(xplane.HOST) else event.plane
        key = event.plane, event.line
        if key not in threads:
            threads[key] = place.pid + len(threads)  # above those of the timeline
            title = {"ph": "M", "name": "thread_name", "tid": threads[key], "args": {"name": event.line}}
            yield _Event(place.rank, process, title)
        times = {"ts": (event.begin_ps - place.zero_unix_ns * 1000) / 1e6, "dur": event.duration_ps / 1e6}
        yield _Event(place.rank, process, {"ph": "X", "name": event.name, "tid": threads[key], **times})


def _place(ranks: Sequence[Place], wanted: int | None, told: Sequence[Place]) -> Place:
    """The rank that was named, or else the only one that the profile tells of."""
    found = told if wanted is None else [each for each in ranks if each.rank == wanted]
    if len(found) == 1:
        return found[0]
    if wanted is not None:
        raise ValueError(f"the timeline has no rank {wanted}")
    raise ValueError("it does not tell whose it is; write RANK=FILE")
