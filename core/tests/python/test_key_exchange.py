"""The key exchange of foreign launchers on one host."""

import os
import secrets
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from farandole import DeadlineError
from farandole._start import key_exchange
from farandole._start.frames import message

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def meeting():
    return f"unix:farandole-test-{secrets.token_hex(8)}"


@pytest.mark.parametrize("size", [2, 3, 8])
def test_all_ranks_get_the_same_store_and_key_whoever_comes_first(meeting, size):
    with ThreadPoolExecutor(size) as pool:
        futures = {}
        for rank in range(size - 1, -1, -1):  # rank 0 last
            futures[rank] = pool.submit(key_exchange.exchange, meeting, rank, size, 30)
        answers = {future.result(30) for future in futures.values()}
    ((store, key),) = answers
    assert store.startswith(f"unix:farandole-{os.getuid()}-")
    assert len(key) == 32


def test_two_exchanges_have_nothing_in_common(meeting):
    def once():
        with ThreadPoolExecutor(2) as pool:
            pool.submit(key_exchange.exchange, meeting, 0, 2, 30)
            return pool.submit(key_exchange.exchange, meeting, 1, 2, 30).result(30)

    (store, key), (other_store, other_key) = once(), once()
    assert store != other_store
    assert key != other_key


def test_a_stranger_who_says_nonsense_does_not_stop_the_others(meeting):
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(key_exchange.exchange, meeting, 0, 2, 30)
        address = "\0" + meeting.removeprefix("unix:") + "-key"
        wrong = [message("rank", rank=rank, size=size) for rank, size in ((7, 2), (1, 3), ("x", 2))]
        for hello in (b"", b"abc", b"\xff" * 5, *wrong):
            with _connected(address) as stranger:
                stranger.sendall(hello)
                stranger.shutdown(socket.SHUT_WR)
                assert stranger.recv(100) == b""
        second = pool.submit(key_exchange.exchange, meeting, 1, 2, 30)
        assert first.result(30) == second.result(30)


def test_a_name_that_is_taken_is_reported(meeting):
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind("\0" + meeting.removeprefix("unix:") + "-key")
        with pytest.raises(OSError, match="FARANDOLE_JOB_ID"):
            key_exchange.exchange(meeting, 0, 2, 30)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_another_users_socket_is_refused(meeting):
    address = "\0" + meeting.removeprefix("unix:") + "-key"
    ready = threading.Event()
    code = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind({address!r}); s.listen()\n"
        "print('ready', flush=True); s.accept(); sys.stdin.read()\n"
    )
    squatter = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert squatter.stdout.readline() == b"ready\n"
        ready.set()
        with pytest.raises(PermissionError, match="65534"):
            key_exchange.exchange(meeting, 1, 2, 30)
    finally:
        squatter.kill()
        squatter.communicate()


def test_who_waits_too_long_is_told_for_whom(meeting, monkeypatch, caplog):
    monkeypatch.setattr(key_exchange, "_WARN_AFTER_S", 0.2)
    with pytest.raises(DeadlineError, match="rank 0 waits in init\\(\\) for rank\\(s\\) 1, 2"):
        key_exchange.exchange(meeting, 0, 3, 1.5)
    assert "rank 0 waits" in caplog.text
    with pytest.raises(DeadlineError, match="rank 1 waits in init\\(\\) for rank 0"):
        key_exchange.exchange(meeting, 1, 3, 1.5)


def test_who_did_not_come_is_known_to_all_that_did(meeting):
    with ThreadPoolExecutor(3) as pool:
        found = {rank: pool.submit(key_exchange.exchange, meeting, rank, 5, 3) for rank in (1, 3, 0)}
    words = "rank 0 waits in init() for rank(s) 2, 4, which did not call it within 3 s"
    for rank, future in found.items():
        assert isinstance(future.exception(), DeadlineError), future
        text = str(future.exception())
        assert text.startswith(words if rank == 0 else f"rank {rank} leaves init(): {words}"), text


def test_who_came_and_died_has_not_come(meeting):
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(key_exchange.exchange, meeting, 0, 3, 1.5)
        with _connected("\0" + meeting.removeprefix("unix:") + "-key") as dying:
            dying.sendall(message("rank", rank=2, size=3))
        with pytest.raises(DeadlineError, match=r"rank 0 waits in init\(\) for rank\(s\) 1, 2,"):
            served.result(30)


def test_a_rank_waits_longer_than_a_rank_0_that_came_after_it(meeting):
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(key_exchange.exchange, meeting, 1, 3, 5)
        threading.Event().wait(1)
        late = pool.submit(key_exchange.exchange, meeting, 0, 3, 5)
        for rank, future in enumerate((late, early)):
            with pytest.raises(DeadlineError, match=rf"rank {rank} .*rank\(s\) 2, which did not call it within"):
                future.result(30)


def _connected(address):
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address)
            return connection
        except ConnectionRefusedError:
            connection.close()
