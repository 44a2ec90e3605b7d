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
from pathlib import Path

import farandole
import pytest
from farandole._cluster import commit_client
from farandole._cluster.commit_store import CommitTarget, DriverStore
from farandole._elastic import commit_file
from farandole._elastic.commit_file import CommitFolder
from farandole._elastic.commit_writer import CommitWriter
from farandole._start.connection import FAILURES, hear, prove, say
from farandole.engine import Call, TaskServer

SECONDS = 20
KEY = b"k" * 32
SERVE = """
import json, sys
from farandole.engine import Invitation, CommitTarget, serve
endpoint, key, order = json.loads(sys.argv[1])
where = CommitTarget(b"k" * 32)
serve(Invitation(tuple(endpoint), bytes.fromhex(key), where), order=order, secret=b"s" * 32)
"""


def whole(commits: int, content: bytes = b"state", key: bytes = KEY) -> memoryview:
    return memoryview(commit_file.head(key, commits, [content]) + content)


def test_a_copy_is_read_as_it_was_written() -> None:
    pieces = [b"ab", memoryview(b"cd"), bytearray(b"e")]
    found = commit_file.read(KEY, memoryview(commit_file.head(KEY, 7, pieces) + b"abcde"))
    assert found is not None and (found.commits, bytes(found.content)) == (7, b"abcde")


def test_a_copy_that_is_not_whole_is_none() -> None:
    data = whole(3)
    assert all(commit_file.read(KEY, data[:size]) is None for size in range(len(data)))
    assert commit_file.read(KEY, memoryview(bytes(data) + b"x")) is None
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        assert commit_file.read(KEY, memoryview(changed)) is None
    assert commit_file.read(b"another key", data) is None


def test_a_folder_has_the_newest_commit_of_each_run(tmp_path: Path) -> None:
    folder = CommitFolder(tmp_path / "job", KEY)
    folder.prepare()
    assert folder.newest(1) is None and folder.commits() == 0
    folder.write(1, 4, [b"four"])
    folder.write(1, 5, [b"five"])
    folder.write(2, 1, [b"other run"])
    found = folder.newest(1)
    assert found is not None and bytes(found.content) == b"five" and folder.commits() == 6
    assert os.stat(tmp_path / "job" / "run-1.commit").st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="has a later commit; give each job a folder of its own"):
        folder.write(1, 3, [b"three"])
    folder.clear()
    assert not folder.path.exists()


@pytest.mark.parametrize("data", [bytes(whole(8))[:-1], bytes(whole(8, key=b"stranger"))])
def test_a_file_that_is_no_commit_of_the_job_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run-1.commit").write_bytes(data)
    with pytest.raises(OSError, match="is damaged or no commit of this job; remove it to start from the beginning"):
        CommitFolder(tmp_path, KEY).newest(1)


def test_without_a_key_a_file_must_be_this_users_alone(tmp_path: Path) -> None:
    folder = CommitFolder(tmp_path)
    folder.write(1, 1, [b"one"])
    assert folder.newest(1) is not None
    said = "must belong to this user, and nobody else may write to it"
    (tmp_path / "run-1.commit").chmod(0o666)
    with pytest.raises(PermissionError, match=said):
        folder.newest(1)
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match=said):
        folder.prepare()


def test_what_a_killed_rank_wrote_in_part_goes_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "run-1.abc.part").write_bytes(b"half")
    CommitFolder(tmp_path).prepare()
    assert not [*tmp_path.iterdir()]


def test_on_a_full_disk_the_former_copy_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CommitFolder(tmp_path, KEY)
    folder.write(1, 1, [b"one"])

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write(1, 2, [b"two"])
    assert folder.commits() == 1
    assert len([*tmp_path.iterdir()]) == 1  # nor is a half one left


class Slow:
    """A place whose writes wait until they may go on."""

    name = "at a slow place"

    def __init__(self) -> None:
        self.written: list[int] = []
        self.may_go_on, self.began = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def prepare(self) -> None:
        pass

    def write(self, run: int, commits: int, pieces: Sequence[commit_file.Piece]) -> None:
        self.began.set()
        assert self.may_go_on.wait(SECONDS)
        if self.error:
            raise self.error
        self.written.append(commits)

    def newest(self, run: int) -> None:
        return None


def test_a_commit_does_not_wait_and_the_newest_goes_next() -> None:
    place = Slow()
    writer = CommitWriter(place)
    writer.save(1, 1, [b"1"])
    assert place.began.wait(SECONDS)
    for commits in range(2, 100):
        writer.save(1, commits, [b"x"])
    assert not writer.flush(0.01)
    place.may_go_on.set()
    assert writer.flush(SECONDS)
    assert place.written == [1, 99]


def test_a_failure_is_told_once_until_a_copy_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    place = Slow()
    place.may_go_on.set()
    writer = CommitWriter(place)
    place.error = OSError(errno.ENOSPC, "No space left on device")
    for commits in (4, 5):
        writer.save(1, commits, [])
        assert writer.flush(SECONDS)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "commit 4 could not be saved at a slow place (No space left on device); the job goes on, and the previous "
        "commit stays."
    ]
    place.error = None
    writer.save(1, 6, [])
    assert writer.flush(SECONDS) and place.written == [6]


def test_an_unexpected_error_does_not_end_the_writing(caplog: pytest.LogCaptureFixture) -> None:
    place = Slow()
    place.may_go_on.set()
    writer = CommitWriter(place)
    place.error = MemoryError("no memory")
    writer.save(1, 1, [])
    assert writer.flush(SECONDS) and "no memory" in caplog.text
    place.error = None
    writer.save(1, 2, [])
    assert writer.flush(SECONDS) and place.written == [2]


def test_the_driver_says_that_it_has_a_later_commit(server: TaskServer, caplog: pytest.LogCaptureFixture) -> None:
    writer = writer_at(server)
    for commits in (2, 1):
        writer.save(1, commits, [b"x"])
        assert writer.flush(SECONDS)
    assert "commit 1 could not be saved on the driver (the driver has a newer commit)" in caplog.text


@pytest.fixture
def server() -> Iterator[TaskServer]:
    with TaskServer("127.0.0.1", store=DriverStore(KEY, most_bytes=1 << 20)) as server:
        yield server


def writer_at(server: TaskServer, folder: str = "") -> CommitWriter:
    descriptor = CommitTarget(KEY, folder).to_file(server.endpoint, server.key)
    try:
        return commit_client.writer_of(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def store_of(server: TaskServer) -> DriverStore:
    assert server.store is not None
    return server.store


def test_the_driver_keeps_the_newest_for_the_next_stage(server: TaskServer) -> None:
    writer = writer_at(server)
    assert writer.destination.newest(1) is None
    for commits in (1, 2):
        writer.save(1, commits, [b"state ", str(commits).encode()])
        assert writer.flush(SECONDS)
    with TaskServer("127.0.0.1", store=server.store) as later:
        found = writer_at(later).destination.newest(1)
    assert found is not None and bytes(found.content) == b"state 2"
    assert not server.tasks()  # a rank that gives commits is no task


def test_a_folder_is_used_where_one_is_named(server: TaskServer, tmp_path: Path) -> None:
    writer = writer_at(server, str(tmp_path))
    writer.save(1, 4, [b"four"])
    assert writer.flush(SECONDS)
    found = writer.destination.newest(1)
    assert found is not None and bytes(found.content) == b"four" and store_of(server).commits() == 0


def giver(server: TaskServer, key: bytes) -> socket.socket:
    connection = socket.create_connection(server.endpoint, timeout=SECONDS)
    prove(connection, key, is_listener=False)
    say(connection, "keeps commits")
    return connection


def test_a_copy_that_is_half_sent_is_never_used(server: TaskServer) -> None:
    store = store_of(server)
    assert not store.add(1, whole(1))
    data = whole(2, b"x" * 1000)
    with giver(server, server.key) as connection:
        say(connection, "copy", run=1, size=len(data))
        assert hear(connection) == {"kind": "ready"}
        connection.sendall(data[:-1])
    with giver(server, server.key) as connection:  # waits until the one before has gone
        say(connection, "copy", run=1, size=len(data))
        assert hear(connection) == {"kind": "ready"}
        connection.sendall(bytes(data[:-1]) + b"y")
        assert "incomplete" in str(hear(connection)["why"])
    assert store.commits() == 1


def test_a_stranger_gives_no_copy(server: TaskServer) -> None:
    with pytest.raises(FAILURES):
        giver(server, b"another key" * 3)


def test_a_copy_that_is_too_large_is_refused_in_a_sentence(
    server: TaskServer, caplog: pytest.LogCaptureFixture
) -> None:
    writer = writer_at(server)
    writer.save(1, 1, [b"x" * (2 << 20)])
    assert writer.flush(SECONDS)
    assert "commit 1 could not be saved on the driver (the driver keeps at most 1 MiB)" in caplog.text
    writer.save(1, 2, [b"small"])
    assert writer.flush(SECONDS) and store_of(server).commits() == 2


def test_a_driver_that_has_gone_ends_no_rank(server: TaskServer, caplog: pytest.LogCaptureFixture) -> None:
    writer = writer_at(server)
    writer.save(1, 1, [b"x"])
    assert writer.flush(SECONDS)
    server.__exit__()
    began = time.monotonic()
    writer.save(1, 2, [b"x"])
    assert writer.flush(SECONDS) and time.monotonic() - began < SECONDS
    assert "commit 2 could not be saved on the driver" in caplog.text


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


def _stage(call: Call, store: DriverStore, ranks: int) -> list[list[tuple[int, int]]]:
    with ExitStack() as stack:
        server = stack.enter_context(TaskServer("127.0.0.1", store=store))
        for order in range(ranks):
            about = json.dumps([server.endpoint, server.key.hex(), order])
            task = stack.enter_context(subprocess.Popen([sys.executable, "-c", SERVE, about]))
            stack.callback(task.kill)
        assert server.wait(ranks, SECONDS)
        return call.run(server, "Tests", ranks)


@pytest.mark.timeout(90)
def test_new_processes_go_on_from_the_last_commit_of_those_before() -> None:
    store = DriverStore(KEY)
    with Call(_train, (), None, "test.run") as call:
        with pytest.raises(farandole.FarandoleError, match="rank 1"):
            _stage(call, store, 2)
        writer = store.commits()
        assert writer in (3, 4)  # rank 0 may be ended before it commits what rank 1 has committed
        assert _stage(call, store, 1) == [[(0, 2), (writer, 1)]]
    assert store.commits() == 6
