"""Profiles of frameworks beside a timeline. The plugins' tests show with the frameworks that times line up."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from farandole.launch import profiles
from farandole.launch.profiles import Place
from farandole.launch.timeline import TimelineError

DAY_NS = 1_800_000_000_000_000_000
# The clock of rank 1's host is an hour ahead.
RANKS = [Place(0, "a", 70, DAY_NS), Place(1, "b", 71, DAY_NS + 3_600_000_000_000)]


def merged(path: Path, content: bytes, rank: str = "") -> list[dict[str, Any]]:
    path.write_bytes(content)
    return [json.loads(text) for text in profiles.read([f"{rank}{path}"], RANKS)]


def of_torch(pid: int, **more: Any) -> bytes:
    events = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 1.0, "args": {"name": "python"}},
        {"ph": "X", "name": "step", "pid": pid, "tid": pid, "ts": 2_000_001.5, "dur": 3.0},
        {"ph": "X", "name": "kernel", "pid": 0, "tid": 7, "ts": 2_000_002.0, "dur": 1.0},
        {"ph": "s", "name": "ac2g", "id": 5, "pid": pid, "tid": pid, "ts": 2_000_001.5},
    ]
    return json.dumps({"baseTimeNanoseconds": DAY_NS, "traceEvents": events, **more}).encode()


def test_spans_of_torch_are_on_the_timelines_clock_beside_their_rank(tmp_path: Path) -> None:
    for pack in (bytes, gzip.compress):
        step, title, kernel, arrow = merged(tmp_path / "p.json", pack(of_torch(70)))
        assert (step["pid"], step["ts"], step["dur"]) == (0, 2_000_001.5, 3.0)
        assert title["args"] == {"name": "GPU 0 of rank 0"}
        assert kernel["pid"] == title["pid"] > 1
        assert arrow["id"] != 5


def test_clocks_of_hosts_that_differ_do_not_matter(tmp_path: Path) -> None:
    base_ns = RANKS[1].zero_unix_ns
    step = merged(tmp_path / "p.json", of_torch(71, baseTimeNanoseconds=base_ns, host_name="b"))[0]
    assert (step["pid"], step["ts"]) == (1, 2_000_001.5)


@pytest.mark.parametrize(
    ("content", "rank", "why"),
    [
        (of_torch(72), "", "does not tell whose it is; write RANK=FILE"),
        (of_torch(70, host_name="b"), "", "does not tell whose it is"),
        (of_torch(70), "4=", "the timeline has no rank 4"),
        (of_torch(70, baseTimeNanoseconds=0), "", "does not tell the time of day"),
        (b'{"traceEvents":[]}', "", "it has no spans"),
        (b'{"traceEvents":', "", "Expecting value"),
        (b"\x1f\x8b\x00", "", "cannot be merged"),
        (b"", "0=", "has no profile_start_time"),
        (b"\x0a\x7f", "0=", "it is cut off"),
    ],
)
def test_profiles_that_cannot_be_placed(tmp_path: Path, content: bytes, rank: str, why: str) -> None:
    with pytest.raises(TimelineError, match=why):
        merged(tmp_path / "p", content, rank)


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def named(number: int, key: int, name: str) -> bytes:
    return field(number, field(1, key) + field(2, field(1, key) + field(2, name)))


def of_tensorflow(start_ns: int) -> bytes:
    event = field(1, 9) + field(2, 500_000_000) + field(3, 4_000_000)  # 500 us, 4 us
    line = field(1, 1 << 60) + field(2, "python") + field(3, 250_000) + field(4, event)
    host = field(2, "/host:CPU") + named(4, 9, "outer") + field(3, line)
    gpu = field(2, "/device:GPU:0") + named(4, 9, "kernel") + field(3, line)
    task = field(2, "Task Environment") + named(5, 3, "profile_start_time") + field(6, field(1, 3) + field(3, start_ns))
    return field(1, host) + field(1, gpu) + field(1, task) + field(4, "a")


def test_spans_of_tensorflow(tmp_path: Path) -> None:
    content = of_tensorflow(DAY_NS + 1_000_000)
    spans = [each for each in merged(tmp_path / "p.xplane.pb", content, "0=") if each["ph"] == "X"]
    assert [(each["name"], each["pid"], each["ts"], each["dur"]) for each in spans] == [
        ("outer", 0, 1750.0, 4.0),
        ("kernel", 1_000_000, 1750.0, 4.0),
    ]


def test_bytes_that_are_no_profile_are_refused_in_a_sentence(tmp_path: Path) -> None:
    draw, whole = random.Random(5), of_tensorflow(DAY_NS)
    for _ in range(300):
        content = bytearray(whole[: draw.randrange(len(whole))])
        for _ in range(draw.randrange(4)):
            content[draw.randrange(len(content) or 1) : 1] = bytes([draw.randrange(256)])
        try:
            merged(tmp_path / "p", bytes(content), "0=")
        except TimelineError as error:
            assert "cannot be merged" in str(error)


def test_the_verb_names_a_profile_that_is_not_there(run: Callable, tmp_path: Path) -> None:
    clock = '{"ph":"M","name":"clock","pid":0,"tid":0,"args":{"zero_unix_ns":"1"}}'
    title = '{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"rank 0 (h (x), pid 7) of run 1"}}'
    (tmp_path / "t.rank0.json").write_text(f"[\n{title},\n{clock}\n]\n")
    assert profiles.places([title, clock]) == [Place(0, "h (x)", 7, 1)]
    result = run("t.json", "--profile", "nowhere.json", verb="timeline")
    assert (result.code, "nowhere.json" in result.err) == (1, True)
    assert not (tmp_path / "t.json").exists()
