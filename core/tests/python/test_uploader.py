"""Timelines at a URL: snapshots, parts, and stores that fail."""

import itertools
import json
import os
import random
import socket
import threading
import time

import farandole
import farandole.numpy as fnp
import fsspec
import numpy as np
import pytest
from farandole._runtime import uploader
from farandole._runtime.trace_names import marked, path_of, shown
from farandole._runtime.uploader import FAIL, NEXT, SAY, HopelessError, Uploader, put, snapshot
from farandole.launch import timeline
from farandole.testing import world

pytestmark = pytest.mark.timeout(60)


def looked_at_while_it_is_written():
    file = os.memfd_create("trace")
    farandole.start_timeline(f"/proc/self/fd/{file}")
    sizes, over, began = set(), threading.Event(), time.monotonic()

    def submit():
        for number in itertools.count():
            fnp.allreduce(np.ones(4), name=f"{number % 20000}" * 9)
            if over.is_set():
                return

    submits = threading.Thread(target=submit)
    submits.start()
    while (seconds := time.monotonic() - began) < 0.7 or (len(sizes) < 3 and seconds < 30):
        sizes.add(len(json.loads(snapshot(file))))
    over.set()
    submits.join()
    farandole.stop_timeline()
    assert len(json.loads(snapshot(file))) == max(len(json.loads(os.pread(file, 1 << 26, 0))), *sizes)
    return len(sizes)


def test_each_snapshot_is_whole_json():
    assert world(1).run(looked_at_while_it_is_written)[0] > 2


@pytest.mark.parametrize("cut", [b"", b",\n{", b',\n{"a":1}', b',\n{"a":"}\n', b"      "])
def test_an_event_that_is_half_written_is_left_out(cut):
    file = os.memfd_create("trace")
    os.write(file, b'[\n{"n":1},\n{"n":2}' + cut + b"\n]\n")
    assert json.loads(snapshot(file))[:2] == [{"n": 1}, {"n": 2}]
    os.ftruncate(file, 0)
    assert json.loads(snapshot(file)) == []


class Rank:
    """Writes numbered events to two files by turns, as the uploader asks, and notes what it is told."""

    def __init__(self, events):
        self.files = tuple(os.memfd_create("part") for _ in range(2))
        self.socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.told, self.current, self.written = [], 0, 0
        self._events, self._end = events, 1
        self._thread = threading.Thread(target=self._run)

    def _begin(self):
        os.truncate(self.files[self.current], 0)
        os.pwrite(self.files[self.current], b"[\n]\n", 0)
        self._end = 1

    def _run(self):
        self._begin()
        self.socket.setblocking(False)
        while self.written < self._events:
            text = b"," * (self._end > 1) + b'\n{"n":%d,"text":"%s"}' % (self.written, b"x" * 100)
            os.pwrite(self.files[self.current], text + b"\n]\n", self._end)
            self._end, self.written = self._end + len(text), self.written + 1
            self._listen()
            time.sleep(0.0002)
        self.socket.shutdown(socket.SHUT_WR)

    def _listen(self):
        try:
            message = self.socket.recv(4096)
        except BlockingIOError:
            return
        if message == NEXT:
            self.current = 1 - self.current
            self._begin()
            self.socket.send(NEXT)
        else:
            self.told.append(message)

    def upload(self, put):
        never, _keep = os.pipe()
        self._thread.start()
        while self.written == 0:
            time.sleep(0.001)
        Uploader("memory://folder/t.rank3.json", self.files, self.theirs, never, put).run()
        self._thread.join()
        self.socket.setblocking(False)
        while True:
            try:
                self.told.append(self.socket.recv(4096))
            except BlockingIOError:
                return


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(uploader, "EVERY_S", 0.001)
    monkeypatch.setattr(uploader, "PART_BYTES", 20_000)
    monkeypatch.setattr(uploader, "_BYTES_PER_S", 1 << 30)
    monkeypatch.setattr(uploader, "_SHARE", 1.0)


@pytest.fixture
def store():
    system = fsspec.filesystem("memory")
    system.store.clear()
    return system


def events_in(store, folder):
    for path in store.find("/folder"):
        (folder / path.rpartition("/")[2]).write_bytes(store.cat(path))
    files = timeline.find([folder / "t.json"])
    return files, [json.loads(event)["n"] for event in timeline.events(files)]


@pytest.mark.parametrize("failures", [0.0, 0.5])
def test_parts_hold_all_events_in_order(quick, store, tmp_path, failures):
    """Also where half of the attempts fail."""
    draw, rank = random.Random(7), Rank(2000)

    def put_or_fail(url, data):
        assert isinstance(json.loads(data), list)
        if draw.random() < failures and rank.socket.fileno() >= 0 and rank.written < 2000:
            raise OSError(28, "the store is full")
        put(url, data)

    rank.upload(put_or_fail)
    files, numbers = events_in(store, tmp_path)
    assert numbers == list(range(2000))
    assert len(files) > 3
    assert timeline.ranks_of(files) == 1
    told = [each[:1] for each in rank.told if each != uploader.NEXT]  # asked for when the rank had just ended
    assert told == [SAY] * (failures > 0)


def test_a_store_that_never_answers_well_is_told_of_once(quick):
    rank = Rank(300)

    def refuse(_url, _data):
        raise PermissionError("no such bucket,\nor not yours")

    rank.upload(refuse)
    (message,) = rank.told
    assert message == SAY + (
        b"the timeline cannot be written to memory://folder/t.rank3.json: PermissionError: no such bucket, or not "
        b"yours; training goes on, and later attempts follow"
    )


def test_memory_is_bounded_where_nothing_can_be_sent(quick, monkeypatch):
    monkeypatch.setattr(uploader, "MOST_BYTES", 50_000)
    rank = Rank(2000)

    def refuse(_url, _data):
        raise OSError("it is down")

    rank.upload(refuse)
    assert [each[:1] for each in rank.told] == [SAY, FAIL]
    assert b"wait to be sent; training goes on, and the timeline ends" in rank.told[-1]


def test_what_no_attempt_can_mend_is_said_at_once(quick):
    with pytest.raises(HopelessError, match="nosuch"):
        put("nosuch://bucket/t.json", b"[\n]\n")
    rank = Rank(100)
    rank.upload(lambda _url, _data: put("nosuch://bucket/t.json", b""))
    assert [each[:1] for each in rank.told] == [FAIL]


def test_names():
    assert path_of("s3://bucket/a.b/trace.json", 3, 4) == "s3://bucket/a.b/trace.rank3.json"
    assert marked("gs://b/t.rank0.json", "part2") == "gs://b/t.rank0.part2.json"
    assert shown("ftp://me:secret@host/t.json") == "ftp://host/t.json"
    for nothing in ("s3://", "memory://"):
        with pytest.raises(ValueError, match="needs the name of a file"):
            path_of(nothing, 0, 1)
