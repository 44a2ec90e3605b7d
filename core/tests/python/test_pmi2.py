"""PMI-2's messages against a stand-in for Slurm's daemon; tests/hosts has the real one."""

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from farandole import DeadlineError
from farandole._start import munge, pmi2

pytestmark = pytest.mark.timeout(60)
LONG_S = 30.0


class Daemon:
    """The keys and names of a step. Each rank's socket has a thread."""

    def __init__(self, size, opening=b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"):
        self.size, self.opening = size, opening
        self.values, self.names, self.fenced = {}, {}, []
        self.changed = threading.Condition()
        self.ours, self.theirs = zip(*(socket.socketpair() for _ in range(size)), strict=True)
        for rank, each in enumerate(self.ours):
            threading.Thread(target=self.serve, args=(rank, each), daemon=True).start()

    def step(self, rank):
        return pmi2.Step(rank, self.size, "7.0", self.theirs[rank].fileno())

    def serve(self, rank, ours):
        with ours.makefile("rb") as messages, suppress(BrokenPipeError):  # tests end as they like
            assert messages.readline() in (b"", b"cmd=init pmi_version=2 pmi_subversion=0\n")
            ours.sendall(self.opening)
            while length := messages.read(6):
                words = messages.read(int(length)).decode().removesuffix(";").split(";")
                with self.changed:
                    self.answer(rank, dict(word.split("=", 1) for word in words))
                    self.changed.notify_all()

    def answer(self, rank, words):
        command = words.pop("cmd")
        more = {}
        if command == "fullinit":
            assert words == {"pmijobid": "7.0", "pmirank": str(rank), "threaded": "FALSE"}
            more = {"rank": rank, "size": self.size}
        elif command == "kvs-put":
            assert len(words["value"]) <= 1024
            self.values[words["key"]] = words["value"]
        elif command == "kvs-get":
            more = {"found": "TRUE", "value": self.values[words["key"]]}
        elif command == "name-publish":
            self.names[words["name"]] = words["port"]
        elif command == "name-lookup" and words["name"] not in self.names:
            return self.say(rank, command, rc=1)
        elif command == "name-lookup":
            more = {"value": self.names[words["name"]]}
        elif command == "kvs-fence":
            self.fenced.append(rank)
            if len(self.fenced) == self.size:
                for each in self.fenced:
                    self.say(each, command, rc=0)
                self.fenced = []
            return None
        return self.say(rank, command, rc=0, **more)

    def say(self, to, command, /, **words):
        text = "".join(f"{name}={value};" for name, value in {"cmd": f"{command}-response", **words}.items())
        self.ours[to].sendall(f"{len(text):6d}{text}".encode())

    def close(self):
        for each in (*self.ours, *self.theirs):
            each.close()


@pytest.fixture
def daemon(monkeypatch):
    made = []

    def make(size, **options):
        made.append(Daemon(size, **options))
        return made[-1]

    monkeypatch.setattr(pmi2, "_connections", {})
    monkeypatch.setattr(munge, "seal", lambda content: "")
    yield make
    for each in made:
        each.close()


def together(size, work):
    with ThreadPoolExecutor(size) as threads:
        return [each.result() for each in [threads.submit(work, rank) for rank in range(size)]]


def test_every_rank_has_the_bytes_of_all_in_every_exchange(daemon):
    step = daemon(4)
    lengths = (0, 1, 719, 720, 721, 5000)

    def work(rank):
        found = []
        for life in range(2):  # a second init() of the same process
            exchange = pmi2.exchange_of(step.step(rank), LONG_S)
            found += [exchange(bytes([rank + life, 59]) * length) for length in lengths]
        return found

    expected = [[bytes([rank + life, 59]) * length for rank in range(4)] for life in range(2) for length in lengths]
    assert together(4, work) == [expected] * 4


def test_rank_0_names_the_ranks_that_do_not_come_and_tells_the_others(daemon):
    step = daemon(5)

    def work(rank):
        if rank in (2, 4):
            return ""
        with pytest.raises(DeadlineError) as caught:
            pmi2.exchange_of(step.step(rank), 0.5)(b"")
        return str(caught.value)

    said = together(5, work)
    sentence = "rank 0 waits in init() for rank(s) 2, 4 of the 5 that srun started, which did not call it within"
    assert said[0].startswith(sentence)
    assert said[1].startswith(f"rank 1 leaves init(): {sentence}") and said[3].startswith("rank 3 leaves init()")
    with pytest.raises(DeadlineError, match=r"rank 4 leaves init\(\): rank 0 waits"):
        pmi2.exchange_of(step.step(4), LONG_S)(b"")
    with pytest.raises(OSError, match=r"an earlier init\(\) has left"):
        pmi2.exchange_of(step.step(0), LONG_S)(b"")


def test_the_others_name_rank_0(daemon, monkeypatch):
    monkeypatch.setattr(pmi2, "ANSWER_S", 0.0)
    step = daemon(2)
    with pytest.raises(DeadlineError, match=r"rank 1 waits in init\(\) for rank 0 of the 2 that srun started, which"):
        pmi2.exchange_of(step.step(1), 0.0)(b"")


def test_a_rank_that_comes_while_it_is_looked_for_is_there(daemon, monkeypatch):
    """The daemon answers the fence before the look-up."""
    monkeypatch.setattr(pmi2, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr("farandole._start.key_exchange._WARN_AFTER_S", 0.0)
    step = daemon(2)
    answer = step.answer

    def late_answer(rank, words):
        if (
            rank == 0
            and words["cmd"] == "name-lookup"
            and words["name"] == "farandole-1-1"
            and not step.values.get("1")
        ):
            step.values["1"] = "asked"
            step.changed.notify_all()
            step.changed.wait_for(lambda: 1 in step.fenced or not step.fenced, LONG_S)
        answer(rank, words)

    step.answer = late_answer

    def work(rank):
        exchange = pmi2.exchange_of(step.step(rank), LONG_S)
        if rank == 1:
            with step.changed:
                step.changed.wait_for(lambda: "1" in step.values, LONG_S)
        return exchange(b"%d" % rank)

    assert together(2, work) == [[b"0", b"1"]] * 2
    assert step.values["1"] == "asked"


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        (b"cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n", "refuses the version 2 of its protocol"),
        (b"", "has closed PMI_FD"),
    ],
)
def test_a_pmi_that_is_none_is_one_sentence(daemon, opening, words):
    step = daemon(1, opening=opening)
    if not opening:
        step.ours[0].shutdown(socket.SHUT_RDWR)
    with pytest.raises(OSError, match=words):
        pmi2.exchange_of(step.step(0), LONG_S)


def test_a_socket_that_a_program_between_has_closed_is_one_sentence(tmp_path, daemon):
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError, match="is no socket in this process"):
        pmi2.exchange_of(pmi2.Step(0, 2, "7.0", file.fileno()), LONG_S)
    read, write = os.pipe()
    os.close(read), os.close(write)
    with pytest.raises(OSError, match="start this one by srun itself"):
        pmi2.exchange_of(pmi2.Step(0, 2, "7.0", write), LONG_S)


def test_another_count_than_that_of_the_step_is_one_sentence(daemon):
    step = daemon(2)
    with pytest.raises(OSError, match=r"says rank 0 of 2, but the step's variables rank 0 of 3"):
        pmi2.exchange_of(pmi2.Step(0, 3, "7.0", step.theirs[0].fileno()), LONG_S)


def sealed(content):
    return munge.PREFIX + content.hex() + ":"


def unsealed(text):
    return bytes.fromhex(text.removeprefix(munge.PREFIX).removesuffix(":"))


def test_bytes_travel_sealed_where_munge_is(daemon, monkeypatch):
    monkeypatch.setattr(munge, "seal", sealed)
    monkeypatch.setattr(munge, "unseal", unsealed)
    step = daemon(2)
    assert together(2, lambda rank: pmi2.exchange_of(step.step(rank), LONG_S)(b"s" * 3000)) == [[b"s" * 3000] * 2] * 2
    assert {
        value for key, value in step.values.items() if key.endswith("-0") and not value.startswith("MUNGE:")
    } == set()


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        ("PLAIN:Zm9v", "it is not sealed, although this host has MUNGE"),
        (sealed(b"7.0 farandole-1-1\0foo"), "it was sealed for another rank or step"),
        (sealed(b"6.0 farandole-1-0\0foo"), "it was sealed for another rank or step"),
    ],
)
def test_a_word_that_is_not_the_ranks_own_is_not_believed(daemon, monkeypatch, forged, words):
    monkeypatch.setattr(munge, "seal", sealed)
    monkeypatch.setattr(munge, "unseal", unsealed)
    step = daemon(1)
    answer = step.answer

    def forge(rank, said):
        if said["cmd"] == "kvs-put" and said["key"] == "farandole-1-0-0":
            said["value"] = forged
        answer(rank, said)

    step.answer = forge
    with pytest.raises(PermissionError, match=f"what rank 0 has put into Slurm's PMI cannot be trusted: {words}"):
        pmi2.exchange_of(step.step(0), LONG_S)(b"bar")
