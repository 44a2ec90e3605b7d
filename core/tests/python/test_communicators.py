"""How the ranks of an MPI communicator tell each other some bytes: over a stand-in of mpi4py's, ranks as threads."""

import _thread
import pickle
import signal
import threading
from collections import defaultdict, deque
from concurrent.futures import ThreadPoolExecutor

import pytest
from farandole import DeadlineError
from farandole._start import communicators, key_exchange

pytestmark = pytest.mark.timeout(60)


class Done:
    """A request that is complete when it is asked for the second time, as none of MPI's need be at once."""

    def __init__(self, content=None):
        self._content, self._asked = content, 0

    def test(self):
        self._asked += 1
        return (True, self._content) if self._asked > 1 else (False, None)


class Never:
    def test(self):
        return False, None


class Message:
    def __init__(self, content):
        self._content = content

    def irecv(self):
        return Done(pickle.loads(self._content))


class Comm:
    """One rank's view of a communicator; `mail`, which all have, holds what was sent: (from, to, tag) -> messages."""

    def __init__(self, mail, rank, size, sent=Done):
        self._mail, self._rank, self._size, self._sent = mail, rank, size, sent

    def Get_rank(self):
        return self._rank

    def Get_size(self):
        return self._size

    def isend(self, obj, dest, tag):
        self._mail[self._rank, dest, tag].append(pickle.dumps(obj))
        return self._sent()

    def improbe(self, source, tag):
        waiting = self._mail[source, self._rank, tag]
        return Message(waiting.popleft()) if waiting else None


def start(pool, size, ranks, timeout_s, calls=1, mail=None):
    """The results of the exchanges of these ranks, of `size`, rank -> future."""
    mail = defaultdict(deque) if mail is None else mail

    def run(rank):
        exchange = communicators.exchange_of(Comm(mail, rank, size), timeout_s)
        return [exchange(f"{rank} in {call}".encode()) for call in range(calls)]

    return {rank: pool.submit(run, rank) for rank in ranks}


@pytest.mark.parametrize("size", [2, 3, 8])
def test_all_know_what_each_said_time_and_again(size):
    mail = defaultdict(deque)
    with ThreadPoolExecutor(size) as pool:
        found = start(pool, size, range(size), 30, calls=3, mail=mail)
    for future in found.values():
        assert future.result() == [[f"{rank} in {call}".encode() for rank in range(size)] for call in range(3)]
    assert not any(mail.values())  # nothing is left in the program's communicator


def test_those_that_did_not_come_are_named_on_all_that_did(monkeypatch, caplog):
    monkeypatch.setattr(key_exchange, "_WARN_AFTER_S", 0.1)
    with ThreadPoolExecutor(3) as pool:
        found = start(pool, 5, [0, 1, 3], 3)
    words = "rank 0 waits in init() for rank(s) 2, 4 of the MPI communicator's 5, which did not call it within 3 s"
    for rank, future in found.items():
        text = str(future.exception())
        assert isinstance(future.exception(), DeadlineError) and words in text, text
        assert text.startswith(words if rank == 0 else f"rank {rank} leaves init(): {words}"), text
        assert "FARANDOLE_START_TIMEOUT" in text
    assert words.partition(",")[0] in caplog.text


def test_where_rank_0_does_not_come_the_others_say_so(monkeypatch):
    monkeypatch.setattr(communicators, "ANSWER_S", 0.5)
    with ThreadPoolExecutor(2) as pool:
        found = start(pool, 3, [1, 2], 0.5)
    for rank, future in found.items():
        with pytest.raises(DeadlineError, match=rf"^rank {rank} waits in init\(\) for rank 0 .* did not call it"):
            future.result()


def test_who_comes_to_the_second_attempt_only_is_met_there():
    mail = defaultdict(deque)
    with ThreadPoolExecutor(3) as pool:
        first = start(pool, 3, [0, 1], 0.5, mail=mail)
        assert all(isinstance(each.exception(), DeadlineError) for each in first.values())
        second = start(pool, 3, [0, 1, 2], 30, mail=mail)
    assert [future.result() for future in second.values()] == [[[b"0 in 0", b"1 in 0", b"2 in 0"]]] * 3


def test_a_wait_is_interrupted_by_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
    threading.Timer(0.3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        communicators.exchange_of(Comm(defaultdict(deque), 1, 2), 50)(b"")
    signal.signal(signal.SIGINT, before)


def test_what_mpi_may_still_send_is_kept_when_the_wait_is_over(monkeypatch):
    monkeypatch.setattr(communicators, "ANSWER_S", 0)
    monkeypatch.setattr(communicators, "_given_up", [])
    exchange = communicators.exchange_of(Comm(defaultdict(deque), 1, 2, sent=Never), 0.2)
    with pytest.raises(DeadlineError, match=r"rank 1 sends in init\(\) to rank\(s\) 0 of the MPI communicator"):
        exchange(b"")
    assert communicators._given_up == [exchange]
    assert [type(each) for each in exchange._requests] == [Never]
