"""The file of a timeline: whole JSON after every append, whole events before every page."""

import json
import resource

import pytest
from farandole._runtime.trace_file import TraceFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.json"


@pytest.fixture
def file(path):
    made = TraceFile(str(path))
    yield made
    made.close()


def test_it_is_whole_after_every_append(path, file):
    assert path.read_text() == "[\n]\n"
    file.append(['{"a":1}'])
    assert path.read_text() == '[\n{"a":1}\n]\n'
    file.append([])
    file.append(['{"b":2}', '{"c":3}'])
    assert path.read_text() == '[\n{"a":1},\n{"b":2},\n{"c":3}\n]\n'


def test_events_are_whole_before_every_page(path, file):
    """At whatever page of a write a SIGKILL comes."""
    events = [f'{{"name":"{"x" * (number % 90)}"}}' for number in range(400)]
    for part in (events, events[:1], events[1:]):
        file.append(part)
    text = path.read_text()
    assert len(text) > 3 * 4096
    for page in range(4096, len(text), 4096):
        assert text[:page].rstrip(" ").endswith("}"), page
        assert text[page:].startswith(",\n"), page
        assert isinstance(json.loads(text[:page] + "]"), list)
    assert json.loads(text) == [json.loads(event) for event in events * 2]


@pytest.mark.parametrize("size", [*range(4070, 4100), 10000])
def test_events_about_as_long_as_a_page(path, file, size):
    events = [{"n": 0}, {"a": "x" * size}, {"n": 1}, {"a": "x" * (size + 1)}, {"n": 2}]
    for event in events:
        file.append([json.dumps(event)])
        json.loads(path.read_text())
    assert json.loads(path.read_text()) == events


def test_an_earlier_file_is_emptied(path):
    path.write_text("of an earlier run, which was longer")
    TraceFile(str(path)).close()
    assert path.read_text() == "[\n]\n"


def test_it_stays_whole_where_no_more_can_be_written(path, file):
    """As on a full disk: the write stops in the middle of an event."""
    file.append(['{"a":1}'])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.append([f'{{"b":"{"x" * 500}"}}'])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == '[\n{"a":1}\n]\n'
