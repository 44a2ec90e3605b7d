"""Commits on the driver or in a folder: whole or not at all, the newest, in the background; no engine is needed."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import farandole
import pytest
from farandole._engines import copies, keeper
from farandole._engines.copies import Shelf
from farandole._engines.copy_folder import Folder
from farandole._engines.keeper import Keeper, Where
from farandole._start.connection import FAILURES, hear, prove, say
from farandole.engine import Call, Hub

SECONDS = 20
KEY = b"k" * 32
SERVE = """
import json, sys
from farandole.engine import Invitation, Where, serve
endpoint, key, order, stage = json.loads(sys.argv[1])
where = Where("a1", b"k" * 32, stage, has_earlier=stage > 0)
serve(Invitation(tuple(endpoint), bytes.fromhex(key), where), order=order, secret=b"s" * 32)
"""


def whole(commits: int, content: bytes = b"state", key: bytes = KEY) -> memoryview:
    return memoryview(copies.head(key, commits, [content]) + content)


def test_a_copy_is_read_as_it_was_written() -> None:
    pieces = [b"ab", memoryview(b"cd"), bytearray(b"e")]
    found = copies.read(KEY, memoryview(copies.head(KEY, 7, pieces) + b"abcde"))
    assert found is not None and (found.commits, bytes(found.content)) == (7, b"abcde")


def test_a_copy_that_is_not_whole_is_none() -> None:
    data = whole(3)
    assert all(copies.read(KEY, data[:size]) is None for size in range(len(data)))
    assert copies.read(KEY, memoryview(bytes(data) + b"x")) is None
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        assert copies.read(KEY, memoryview(changed)) is None
    assert copies.read(b"another key", data) is None


def test_the_newest_has_the_most_commits() -> None:
    found = [copies.read(KEY, whole(commits)) for commits in (2, 9, 4)]
    assert copies.newest([None, *found]) is found[1]
    assert copies.newest([None]) is None


def test_a_folder_has_the_newest_copy_of_its_job_alone(tmp_path: Path) -> None:
    folder, other = Folder(tmp_path, "a1", KEY), Folder(tmp_path, "a12", KEY)
    assert folder.newest() is None and folder.commits() == 0
    folder.write(5, [b"five"])
    replace(folder, stage=1).write(3, [b"three"])
    other.write(99, [b"other"])
    (tmp_path / "farandole-a1-7.commit").write_bytes(whole(88, b"half")[:-1])
    (tmp_path / "farandole-a1-8.commit").write_bytes(whole(88, key=b"stranger"))
    found = folder.newest()
    assert found is not None and bytes(found.content) == b"five"
    assert os.stat(tmp_path / "farandole-a1-0.commit").st_mode & 0o777 == 0o600
    folder.clear()
    assert other.commits() == 99 and [each.name for each in tmp_path.iterdir()] == ["farandole-a12-0.commit"]


def test_on_a_full_disk_the_former_copy_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, "a1", KEY)
    folder.write(1, [b"one"])

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write(2, [b"two"])
    assert folder.commits() == 1
    assert len([*tmp_path.iterdir()]) == 1  # nor is a half one left


class Slow:
    """A place whose writes wait until they may go on."""

    name = "at a slow place"

    def __init__(self) -> None:
        self.written: list[int] = []
        self.may_go_on, self.began = threading.Event(), threading.Event()
        self.error: OSError | None = None

    def write(self, commits: int, pieces: Sequence[copies.Piece]) -> None:
        self.began.set()
        assert self.may_go_on.wait(SECONDS)
        if self.error:
            raise self.error
        self.written.append(commits)

    def newest(self) -> None:
        return None


def test_a_commit_does_not_wait_and_the_newest_goes_next() -> None:
    place = Slow()
    kept = Keeper(place, has_earlier=False)
    kept.keep(1, [b"1"])
    assert place.began.wait(SECONDS)
    for commits in range(2, 100):
        kept.keep(commits, [b"x"])
    assert not kept.flush(0.01)
    place.may_go_on.set()
    assert kept.flush(SECONDS)
    assert place.written == [1, 99]


def test_a_failure_is_told_once_until_a_copy_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    place = Slow()
    place.may_go_on.set()
    kept = Keeper(place, has_earlier=False)
    place.error = OSError(errno.ENOSPC, "No space left on device")
    for commits in (4, 5):
        kept.keep(commits, [])
        assert kept.flush(SECONDS)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "commit 4 could not be kept at a slow place (No space left on device); the job goes on, and the former copy "
        "stays."
    ]
    place.error = None
    kept.keep(6, [])
    assert kept.flush(SECONDS) and place.written == [6]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub("127.0.0.1", shelf=Shelf(KEY, most_bytes=1 << 20)) as hub:
        yield hub


def keeper_at(hub: Hub, folder: str = "") -> Keeper:
    descriptor = Where("a1", KEY, 2, folder, has_earlier=True).lent(hub.endpoint, hub.key)
    try:
        return keeper.of_file(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def shelf_of(hub: Hub) -> Shelf:
    assert hub.shelf is not None
    return hub.shelf


def test_the_driver_keeps_the_newest_for_the_next_stage(hub: Hub) -> None:
    kept = keeper_at(hub)
    assert kept.has_earlier and kept.newest() is None
    for commits in (1, 2):
        kept.keep(commits, [b"state ", str(commits).encode()])
        assert kept.flush(SECONDS)
    with Hub("127.0.0.1", shelf=hub.shelf) as later:
        found = keeper_at(later).newest()
    assert found is not None and bytes(found) == b"state 2"
    assert not hub.tasks()  # a rank that gives commits is no task


def test_a_folder_is_used_where_one_is_named(hub: Hub, tmp_path: Path) -> None:
    kept = keeper_at(hub, str(tmp_path))
    kept.keep(4, [b"four"])
    assert kept.flush(SECONDS)
    found = kept.newest()
    assert found is not None and bytes(found) == b"four" and shelf_of(hub).commits() == 0


def giver(hub: Hub, key: bytes) -> socket.socket:
    connection = socket.create_connection(hub.endpoint, timeout=SECONDS)
    prove(connection, key, is_listener=False)
    say(connection, "keeps commits")
    return connection


def test_a_copy_that_is_half_sent_is_never_used(hub: Hub) -> None:
    shelf = shelf_of(hub)
    assert not shelf.put(whole(1))
    data = whole(2, b"x" * 1000)
    with giver(hub, hub.key) as connection:
        say(connection, "copy", size=len(data))
        assert hear(connection) == {"kind": "ready"}
        connection.sendall(data[:-1])
    with giver(hub, hub.key) as connection:  # waits until the one before has gone
        say(connection, "copy", size=len(data))
        assert hear(connection) == {"kind": "ready"}
        connection.sendall(bytes(data[:-1]) + b"y")
        assert "not arrived whole" in str(hear(connection)["why"])
    assert shelf.commits() == 1


def test_a_stranger_gives_no_copy(hub: Hub) -> None:
    with pytest.raises(FAILURES):
        giver(hub, b"another key" * 3)


def test_a_copy_that_is_too_large_is_refused_in_a_sentence(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    kept = keeper_at(hub)
    kept.keep(1, [b"x" * (2 << 20)])
    assert kept.flush(SECONDS)
    assert "commit 1 could not be kept on the driver (the driver keeps at most 1 MiB)" in caplog.text
    kept.keep(2, [b"small"])
    assert kept.flush(SECONDS) and shelf_of(hub).commits() == 2


def test_a_driver_that_has_gone_ends_no_rank(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    kept = keeper_at(hub)
    kept.keep(1, [b"x"])
    assert kept.flush(SECONDS)
    hub.__exit__()
    began = time.monotonic()
    kept.keep(2, [b"x"])
    assert kept.flush(SECONDS) and time.monotonic() - began < SECONDS
    assert "commit 2 could not be kept on the driver" in caplog.text


def _train() -> list[tuple[int, int]]:
    import farandole.elastic
    import farandole.numpy as hvd
    import numpy

    hvd.init()
    state = farandole.elastic.ObjectState(step=0, began=[])

    @farandole.elastic.run
    def run(state: farandole.elastic.ObjectState) -> None:
        state.began = [*state.began, (state.step, hvd.size())]
        while state.step < 6:
            hvd.allreduce(numpy.array([1.0]))
            state.step += 1
            state.commit()
            if state.step == 4 and hvd.size() == 2 and hvd.rank() == 1:
                os._exit(3)

    run(state)
    return list(state.began)


def _stage(call: Call, shelf: Shelf, stage: int, ranks: int) -> list[list[tuple[int, int]]]:
    with ExitStack() as stack:
        hub = stack.enter_context(Hub("127.0.0.1", shelf=shelf))
        for order in range(ranks):
            about = json.dumps([hub.endpoint, hub.key.hex(), order, stage])
            task = stack.enter_context(subprocess.Popen([sys.executable, "-c", SERVE, about]))
            stack.callback(task.kill)
        assert hub.wait(ranks, SECONDS)
        return call.run(hub, "Tests", ranks)


@pytest.mark.timeout(90)
def test_new_processes_go_on_from_the_last_commit_of_those_before() -> None:
    shelf = Shelf(KEY)
    with Call(_train, (), None, "test.run") as call:
        with pytest.raises(farandole.FarandoleError, match="rank 1"):
            _stage(call, shelf, 0, 2)
        kept = shelf.commits()
        assert kept in (3, 4)  # rank 0 may be ended before it commits what rank 1 has committed
        assert _stage(call, shelf, 1, 1) == [[(0, 2), (kept, 1)]]
    assert shelf.commits() == 6
