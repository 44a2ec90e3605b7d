"""The thread that writes a timeline: nothing is lost at its end, nobody waits for a slow file system."""

import errno
import json
import threading
import time

import pytest
from farandole._runtime import trace_writer
from farandole._runtime.trace_events import Event
from farandole._runtime.trace_writer import TraceWriter

pytestmark = pytest.mark.timeout(60)


class Core:
    """Stands for the compiled core: events in a list."""

    def __init__(self):
        self.is_on, self.events, self.lost = False, [], 0

    def start_timeline(self, marks_batches):
        self.is_on, self.events = True, []

    def stop_timeline(self):
        self.is_on = False

    def take_events(self, most):
        taken, self.events = self.events[:most], self.events[most:]
        return taken

    def take_lost_events(self):
        lost, self.lost = self.lost, 0
        return lost

    def record(self, *names):
        self.events += [tuple(Event(0, "allreduce", name, 1, 0, 0, 2, 4, 1, 0, False)) for name in names]


@pytest.fixture
def core(monkeypatch):
    fake = Core()
    monkeypatch.setattr(trace_writer, "core", fake)
    return fake


@pytest.fixture
def idle(monkeypatch):
    """The thread writes only at the end."""
    monkeypatch.setattr(trace_writer, "_INTERVAL_S", 3600.0)


def names_in(path):
    return [event["name"] for event in json.loads(path.read_text()) if event["ph"] in "bi"]


def wait_for(text, path):
    while text not in path.read_text():
        time.sleep(0.001)


def begun(path):
    return TraceWriter(str(path), "rank 0", 0, 0, marks_batches=False)


def test_what_is_left_is_written_at_the_end(core, idle, tmp_path):
    writer = begun(tmp_path / "t.json")
    assert core.is_on
    names = [f"grad {number}" for number in range(1000)]
    core.record(*names)
    core.lost = 7
    writer.close()
    assert not core.is_on
    *found, loss = names_in(tmp_path / "t.json")
    assert found == names
    assert loss.startswith("7 events were not recorded")


def test_the_end_of_a_full_queue_tells_what_is_missing(core, idle, tmp_path):
    writer = begun(tmp_path / "t.json")
    core.record(*["grad"] * (1 << 15))
    core.lost = 7
    writer.close()
    assert names_in(tmp_path / "t.json")[-1].startswith("7 events were not recorded")


def test_it_is_written_while_the_program_runs(core, monkeypatch, tmp_path):
    monkeypatch.setattr(trace_writer, "_INTERVAL_S", 0.001)
    writer = begun(tmp_path / "t.json")
    core.record("first")
    wait_for("first", tmp_path / "t.json")
    writer.close()
    assert names_in(tmp_path / "t.json") == ["first"]


def test_a_world_comes_between_the_events_before_and_after(core, idle, tmp_path):
    writer = begun(tmp_path / "t.json")
    core.record("before")
    writer.enter_world(2, 1, 3)
    core.record("after")
    writer.close()
    assert names_in(tmp_path / "t.json") == ["before", "epoch 2: rank 1 of 3", "after"]


def test_a_full_file_system_ends_it_and_is_said_once(core, idle, monkeypatch, tmp_path, caplog):
    writer = begun(tmp_path / "t.json")

    def refuse(_lines):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer._file, "append", refuse)
    core.record("grad")
    writer._wake.set()
    writer._thread.join()
    assert not core.is_on
    core.start_timeline(False)  # as another writer does
    writer.close()
    assert core.is_on
    assert caplog.text.count("cannot be written any further: No space left on device; training goes on") == 1
    assert names_in(tmp_path / "t.json") == []


def test_nobody_waits_for_a_file_system_that_does_not_answer(core, idle, monkeypatch, tmp_path, caplog):
    writer, answers, entered = begun(tmp_path / "slow.json"), threading.Event(), threading.Event()
    append = writer._file.append

    def append_slowly(lines):
        entered.set()
        answers.wait()
        append(lines)

    monkeypatch.setattr(writer._file, "append", append_slowly)
    core.record("first")
    writer._wake.set()
    entered.wait()
    core.record("second")
    writer.enter_world(1, 0, 2)
    monkeypatch.setattr(trace_writer, "_PATIENCE_S", 0.0)
    writer.close()
    assert "slow.json' has not been written, because the file system does not answer" in caplog.text
    later = begun(tmp_path / "later.json")
    core.record("of the later one")
    answers.set()
    writer._thread.join()
    monkeypatch.setattr(trace_writer, "_PATIENCE_S", 60.0)
    later.close()
    assert names_in(tmp_path / "slow.json") == ["first", "second", "epoch 1: rank 0 of 2"]
    assert names_in(tmp_path / "later.json") == ["of the later one"]
