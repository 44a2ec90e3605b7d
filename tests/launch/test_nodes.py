"""Nodes that each run `farandole run --nnodes`: the proof, the node_list, options, jobs here. A lab has others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from farandole._start import frames
from farandole._start.proof import OtherProgramError, Proof, ProofError
from farandole.launch import placement
from farandole.launch.environment import own_version
from farandole.launch.head import node_list
from farandole.launch.node_options import NodeOptions, node_options
from farandole.launch.spec import JobSpec, SpecError

KEY = bytes(range(32))

# ---- the proof


def talk(listener: Proof, caller: Proof, piece: int) -> None:
    """Bytes go both ways in pieces."""
    others = {listener: caller, caller: listener}
    waiting = [(caller, listener.first())]
    while waiting:
        to, data = waiting.pop(0)
        for at in range(0, len(data), piece):
            waiting.append((others[to], to.feed(data[at : at + piece])))


@pytest.mark.parametrize("piece", [1, 13, 1000])
def test_both_ends_prove_one_key_however_their_bytes_are_cut(piece: int) -> None:
    listener, caller = Proof(KEY, is_listener=True), Proof(KEY, is_listener=False)
    talk(listener, caller, piece)
    assert listener.is_done and caller.is_done


def test_bytes_behind_a_proof_and_the_end_before_one_are_refused() -> None:
    listener, caller = Proof(KEY, is_listener=True), Proof(KEY, is_listener=False)
    answer = listener.feed(caller.feed(listener.first()))
    with pytest.raises(ConnectionError, match="its message is too long"):
        caller.feed(answer + b"first message")
    with pytest.raises(ConnectionError, match="ended the connection"):
        Proof(KEY, is_listener=False).feed(b"")


def test_another_key_is_refused_before_the_listener_says_anything_of_its_own() -> None:
    listener, caller = Proof(KEY, is_listener=True), Proof(b"x" * 32, is_listener=False)
    answer = caller.feed(listener.first())
    with pytest.raises(ProofError):
        listener.feed(answer)
    with pytest.raises(ProofError, match="refused"):
        caller.feed(b"")
    assert not caller.is_done and not listener.is_done


def test_a_listener_without_the_key_is_refused() -> None:
    """It cannot send the caller's own proof back either."""
    caller = Proof(KEY, is_listener=False)
    answer = caller.feed(Proof(KEY, is_listener=True).first())
    with pytest.raises(ProofError):
        caller.feed(answer[-32:])


def test_an_older_proof_is_worth_nothing() -> None:
    listener, caller = Proof(KEY, is_listener=True), Proof(KEY, is_listener=False)
    answer = caller.feed(listener.first())
    assert listener.feed(answer)
    with pytest.raises(ProofError):
        Proof(KEY, is_listener=True).feed(answer)


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"farandole nodes 2\n", b"\0"])
def test_another_program_is_known_by_its_first_bytes(said: bytes) -> None:
    with pytest.raises(OtherProgramError):
        Proof(KEY, is_listener=False).feed(said)


# ---- the node_list


def about(node: int, count: int = 3, slots: int = 2, version: str = "1") -> dict[str, Any]:
    return {"node": node, "count": count, "version": version, "host": f"h{node}", "address": f"a{node}", "slots": slots}


def a_roll() -> node_list.NodeList:
    return node_list.NodeList(3, "1", node_list.Member("h0", "a0", 1))


def test_nodes_may_have_different_numbers_of_ranks() -> None:
    made = a_roll()
    assert [made.join(about(2)), made.missing, made.join(about(1, slots=3)), made.missing] == [2, [1], 1, []]
    placements = node_list.placements(made.members)
    assert [[each.rank for each in ranks] for ranks in placements] == [[0], [1, 2, 3], [4, 5]]
    assert [(each.local_rank, each.local_size, each.cross_rank, each.cross_size) for each in placements[2]] == [
        (0, 2, 2, 3),
        (1, 2, 1, 2),
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (about(1, version="2"), "node 1 (h1) has farandole '2', node 0 1; give all nodes the same one."),
        (about(1, count=4), "node 1 (h1) has --nnodes 4, node 0 3; give all nodes the same."),
        (about(1, slots=65536), "the nodes have 65537 ranks, more than the 65536 that a job may have."),
    ],
)
def test_a_node_of_another_job_ends_the_start(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(node_list.NodeListError) as found:
        a_roll().join(content)
    assert str(found.value) == sentence


def test_a_second_node_with_one_number_is_refused_unless_the_first_has_gone() -> None:
    made = a_roll()
    made.join(about(1))
    for number in (0, 1):
        with pytest.raises(node_list.NodeListError, match=f"node {number} has connected already, from h{number}"):
            made.join(about(number))
    ours, theirs = socket.socketpair()
    made = a_roll()
    made.join(about(1), ours)
    made.forget_gone()
    assert made.missing == [2]
    theirs.close()
    made.forget_gone()
    assert made.join(about(1)) == 1


@pytest.mark.parametrize("slots", [0, -1, "2", 65537, None])
def test_a_number_of_ranks_that_is_none_is_no_message(slots: Any) -> None:
    with pytest.raises(ValueError, match="is no number of slots"):
        a_roll().join({**about(1), "slots": slots})


def test_nodes_that_are_late_are_named_by_their_numbers() -> None:
    assert node_list.late([1], 2, "t:1", 4, ()) == (
        "node 1 of 2 did not connect to t:1 within 4 s: look at its log, and at whether it was started."
    )
    assert "nodes 1, 2 and 5 of 9 did not connect" in node_list.late([1, 2, 5], 9, "t:1", 4, ())
    assert "nodes 1, 2, 3, 4, 5, 6, 7, 8 and 91 more of 100" in node_list.late(range(1, 100), 100, "t:1", 4, ())
    assert "a launcher at 10.0.0.7 has another key" in node_list.late([1], 2, "t:1", 4, {"10.0.0.7"})


# ---- options

WHOLE = {"nnodes": "2", "node_rank": "1", "rendezvous": "train-0.train:29500"}


def options(**given: Any) -> NodeOptions | None:
    return node_options(JobSpec.of(**given), lambda: 5, "", ())


def test_a_node_is_described_by_its_options(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    made = options(**WHOLE, key_file=tmp_path / "key", nproc_per_node="auto", start_timeout=9.0)
    assert made == NodeOptions(2, 1, "train-0.train", 29500, KEY, 5, 9.0)
    assert repr(KEY) not in repr(made)
    assert options() is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nnodes": "0"}, "--nnodes must be a positive whole number, not '0'"),
        ({"node_rank": "2"}, "--node-rank must be from 0 to 1 with --nnodes 2, not '2'"),
        ({"node_rank": "-1"}, "--node-rank must be from 0 to 1"),
        ({"node_rank": "$(JOB_COMPLETION_INDEX)"}, "--node-rank must be from 0 to 1"),
        ({"node_rank": None}, "--nnodes needs --node-rank, --rendezvous, --key-file; --node-rank is missing"),
        ({"nnodes": None}, "--node-rank is for one of several nodes; give --nnodes"),
        ({"rendezvous": "train-0"}, "--rendezvous wants node 0's host and port"),
        ({"rendezvous": "h0:0"}, "--rendezvous wants"),
        ({"rendezvous": "h0:65536"}, "--rendezvous wants"),
        ({"rendezvous": "fd00::1:29500"}, "--rendezvous wants"),
        ({"rendezvous": "me@h0:29500"}, "--rendezvous wants"),
        ({"rendezvous": "-o:29500"}, "is no name of a host"),
        ({"hosts": "h1:2"}, "give one of -H and --nnodes"),
        ({"hostfile": Path("hosts")}, "give one of --hostfile and --nnodes"),
        ({"file": Path("job.yml")}, "give one of --file and --nnodes"),
        ({"num_proc": "4"}, "-np counts the ranks of all nodes"),
        ({"nproc_per_node": "0"}, "--nproc-per-node must be a positive whole number"),
        ({"key_file": Path("none")}, "--key-file none cannot be read: No such file or directory; make one with"),
        ({"key_file": Path("/dev/null")}, "--key-file /dev/null has 0 bytes, not 32 to 4096; make one with"),
        ({"key_file": Path("/dev/zero")}, "--key-file /dev/zero has more than 4096 bytes"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    (tmp_path / "key").write_bytes(KEY)
    with pytest.raises(SpecError) as found:
        options(**{**WHOLE, "key_file": tmp_path / "key", **given})
    assert words in str(found.value)


# ---- jobs


@pytest.fixture
def port() -> int:
    """Of the rendezvous."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def node(launch: Callable, tmp_path: Path, port: int) -> Callable:
    """node(1, "sh", "-c", ...) starts node 1 of two, with two ranks."""
    (tmp_path / "key").write_bytes(KEY)

    def start(number: int, *words: object, key: str = "key", wait: int = 30, count: int = 2, **options: Any) -> Any:
        place = ["--nnodes", count, "--node-rank", number, "--rendezvous", f"127.0.0.1:{port}", "--key-file", key]
        return launch(*place, "--nproc-per-node", 2, "--start-timeout", wait, *words, **options)

    return start


def test_ranks_of_two_nodes_are_one_job(node: Callable) -> None:
    names = "RANK WORLD_SIZE LOCAL_RANK FARANDOLE_CROSS_RANK FARANDOLE_CROSS_SIZE FARANDOLE_ADDRESS MASTER_ADDR"
    code = f"import os; e = os.environ; print(*(e[n] for n in '{names} FARANDOLE_STORE MASTER_PORT'.split()))"
    code += "; print(open(e['FARANDOLE_KEY_FILE'], 'rb').read().hex())"
    jobs = [node(number, "python", "-c", code) for number in (1, 0)]  # in any order
    (one, zero) = (job.finish() for job in jobs)
    assert (one.code, one.err, zero.code, zero.err) == (0, "", 0, "")
    lines = [line.split()[2:] for line in (zero.out + one.out).splitlines()]
    places = sorted(line for line in lines if len(line) > 1)
    assert [line[:7] for line in places] == [
        [str(rank), "4", str(rank % 2), str(rank // 2), "2", "127.0.0.1", "127.0.0.1"] for rank in range(4)
    ]
    assert len({tuple(line[7:]) for line in places}) == 1, "one endpoint and one port for all"
    (key,) = {line[0] for line in lines if len(line) == 1}
    assert len(bytes.fromhex(key)) == 32 and bytes.fromhex(key) != KEY, "each start has a key of its own"


def test_both_launchers_end_with_the_code_of_the_rank_that_fails(node: Callable) -> None:
    code = "[ $RANK = 3 ] && exit 7; trap 'exit 0' TERM; while :; do sleep 0.05; done"
    jobs = [node(number, "sh", "-c", code) for number in (0, 1)]
    zero, one = (job.finish() for job in jobs)
    assert (zero.code, one.code) == (7, 7)
    assert "rank 3 on" in zero.err and zero.err.endswith("its lines are in the output of node 1.\n")
    assert "rank 3 on" in one.err and one.err.endswith("it printed nothing.\n")
    assert max(zero.took_s, one.took_s) < 20


def test_nodes_hear_of_each_other_through_node_0(node: Callable) -> None:
    code = "[ $RANK = 5 ] && exit 7; trap 'exit 0' TERM; while :; do sleep 0.05; done"
    jobs = [node(number, "sh", "-c", code, count=3) for number in (0, 1, 2)]
    results = [job.finish() for job in jobs]
    assert [result.code for result in results] == [7] * 3
    assert all("rank 5 on" in result.err for result in results)
    assert results[1].err.endswith("its lines are in the output of node 2.\n")


def test_rank_0_reads_the_stdin_of_node_0(node: Callable) -> None:
    jobs = [node(number, "sh", "-c", "echo got $(cat)", stdin=subprocess.PIPE) for number in (0, 1)]
    zero, one = (job.finish(b"typed\n") for job in jobs)
    assert (zero.code, one.code) == (0, 0)
    assert [line.split(maxsplit=2)[2] for line in sorted(zero.out.splitlines())] == ["got typed", "got"]
    assert "typed" not in one.out


def test_a_node_that_cannot_start_its_ranks_says_why_on_both(node: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one, zero = node(1, "--output-dir", "file/logs", "sleep", 50), node(0, "sleep", 50)
    why = "farandole: node 1: --output-dir: file/logs: Not a directory.\n"
    assert [(each.code, each.err) for each in (one.finish(), zero.finish())] == [(2, why)] * 2
    zero, one = node(0, "--output-dir", "file/logs", "sleep", 50), node(1, "sleep", 50)
    why = "farandole: node 0 cannot start its ranks: --output-dir: file/logs: Not a directory.\n"
    assert [(each.code, each.err) for each in (one.finish(), zero.finish())] == [(2, why)] * 2


@pytest.mark.parametrize(
    ("number", "whom", "signum"),
    [
        *((0, whom, signal.SIGKILL) for whom in ("launcher", "inner", "agent", "agent's inner", "rank")),
        *((1, whom, signal.SIGKILL) for whom in ("launcher", "inner", "rank")),
        *((number, "launcher", signal.SIGINT) for number in (0, 1)),
    ],
)
def test_whoever_is_killed_leaves_nothing_on_any_node(node: Callable, number: int, whom: str, signum: int) -> None:
    jobs = [
        node(each, sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)") for each in (0, 1)
    ]
    for job in jobs:
        assert all(b"ready" in job.read_line() for _ in range(2))
    chain = [psutil.Process(jobs[number].pid)]
    while children := chain[-1].children():
        chain.append(children[0])
    names = ["launcher", "inner", *(["agent", "agent's inner"] if number == 0 else []), "rank"]
    os.kill(dict(zip(names, chain, strict=True))[whom].pid, signum)
    codes = [job.finish().code for job in jobs]
    assert codes[1 - number] != 0
    assert codes[number] == (-9 if (whom, signum) == ("launcher", signal.SIGKILL) else 128 + signum)
    for job in jobs:
        job.wait_until_nothing_is_left()


def frame(kind: str, **content: Any) -> bytes:
    text = json.dumps({"kind": kind, **content}).encode()
    return struct.pack("!IB", len(text), 1) + text


def prove(connection: socket.socket, is_listener: bool) -> frames.FrameReader:
    proof = Proof(KEY, is_listener)
    connection.sendall(proof.first())
    while not proof.is_done:
        answer = proof.feed(connection.recv(1))
        connection.sendall(answer)
    return frames.FrameReader(greeted=True)


@contextlib.contextmanager
def node_0(port: int, *, launched: Callable[[], Any], **more: Any) -> Iterator[tuple[Any, socket.socket]]:
    """Stands in for node 0, with rank 0; starts ranks 1 and 2 on the node that comes."""
    ranks = [vars(each) for each in placement.place(3, [placement.HostSlots("h0", 1), placement.HostSlots("h1", 2)])]
    master = {"store": "tcp:127.0.0.1:9", "master_address": "127.0.0.1", "master_port": 9}
    with socket.create_server(("127.0.0.1", port)) as server:
        job = launched()
        connection, _ = server.accept()
        with connection:
            prove(connection, is_listener=True)
            assert b"greeting" in connection.recv(1 << 16)
            connection.sendall(frame("start", nodes=[ranks[:1], ranks[1:]], salt="00", **master, **more))
            yield job, connection


def test_no_message_makes_a_node_run_another_program(node: Callable, port: int, tmp_path: Path) -> None:
    """Messages are not encrypted, so whoever alters one must not gain more than the end of the job."""
    evil = {"command": ["touch", "evil"], "environment": {"EVIL": "evil"}, "module": True, "call_bytes": 0}
    with node_0(port, launched=lambda: node(1, "sh", "-c", "echo up $EVIL; exec sleep 50"), **evil) as (
        job,
        connection,
    ):
        connection.sendall(frame("check", environment={"PYTHONSTARTUP": "evil"}, limit_s=1.0))
        connection.sendall(frame("more", placement={}) + frame("listen", host=0, addresses=[], probe_key=""))
        assert [job.read_line().split(maxsplit=2)[2] for _ in range(2)] == [b"up\n"] * 2
        assert len(job.of_each(psutil.Process.cmdline)) == 4, "the two of the launcher, and two ranks"
    result = job.finish()
    assert result.code == 255 and "rank 0 on h0" in result.err and "was lost first" in result.err
    assert not (tmp_path / "evil").exists()


def test_the_end_of_node_0_after_that_of_its_ranks_does_not_end_others(node: Callable, port: int) -> None:
    death = {"rank": 0, "pid": 7, "code": 0, "ran_s": 1.0, "asked": False, "joins": 0, "report": None, "lost": ""}
    with node_0(port, launched=lambda: node(1, "sh", "-c", "echo up; sleep 2; echo end")) as (job, connection):
        connection.sendall(frame("ended", recorded="", **death))
        assert [job.read_line().split()[2] for _ in range(2)] == [b"up"] * 2
    result = job.finish()
    assert (result.code, result.err) == (0, "")
    assert [line.split()[2] for line in result.out.splitlines()] == ["end"] * 2


def test_node_0_tells_neither_its_command_nor_variables_nor_the_key(node: Callable, port: int) -> None:
    job = node(0, "sh", "-c", "exec sleep 50", env={"SECRET": "verysecret"})
    connection, until = None, time.monotonic() + 20
    while connection is None and time.monotonic() < until:
        with contextlib.suppress(ConnectionRefusedError):
            connection = socket.create_connection(("127.0.0.1", port))
    assert connection is not None
    with connection:
        reader = prove(connection, is_listener=False)
        about = {"version": own_version(), "host": "h1", "address": "127.0.0.1", "slots": 1, "python": "", "cores": []}
        connection.sendall(frame("greeting", node=1, count=2, **about))
        told: list[Any] = []
        while not told:
            frames_here: list[Any] = list(reader.feed(connection.recv(1 << 16)))
            told = [each for each in frames_here if each["kind"] == "start"]
    assert told[0].keys() == {"kind", "store", "master_address", "master_port", "nodes", "salt"}
    assert KEY.hex() not in str(told) and "verysecret" not in str(told)
    result = job.finish()
    assert (result.code, result.err) == (2, "farandole: node 1 was lost while the job started.\n")


def test_a_launcher_waits_for_the_ranks_of_the_other(node: Callable) -> None:
    code = "[ $RANK -lt 2 ] || { sleep 1; exit $(((RANK == 3) * 5)); }"
    jobs = [node(number, "sh", "-c", code) for number in (0, 1)]
    assert [job.finish().code for job in jobs] == [5, 5]


def test_the_end_of_one_launcher_ends_the_other(node: Callable) -> None:
    jobs = [node(number, "sh", "-c", "echo up; exec sleep 100") for number in (0, 1)]
    for job in jobs:
        assert [job.read_line()[-3:] for _ in range(2)] == [b"up\n"] * 2
    jobs[1].process.terminate()
    zero, one = (job.finish() for job in jobs)
    assert (zero.code, one.code) == (143, 143)
    assert "somebody ended the launcher of node 1 by SIGTERM" in zero.err


def test_other_keys_are_told_on_both_nodes(node: Callable, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(KEY[::-1])
    jobs = [node(1, "true", key="other"), node(0, "true", wait=5)]  # the first one tries until the other listens
    one, zero = (job.finish() for job in jobs)
    assert (zero.code, one.code) == (2, 2)
    assert "node 1 and node 0 at 127.0.0.1" in one.err and "have different keys" in one.err
    assert "node 1 of 2 did not connect" in zero.err and "at 127.0.0.1 has another key" in zero.err
    assert (zero.err + one.err).count("\n") == 2


def test_a_start_that_is_interrupted_ends_at_once(node: Callable, tmp_path: Path) -> None:
    job = node(0, "true", wait=300)
    port = None
    until = time.monotonic() + 20
    while port is None and time.monotonic() < until:
        port = next(
            (each for made in job.of_each(psutil.Process.net_connections) for each in made if each.status == "LISTEN"),
            None,
        )
    assert port is not None
    job.process.terminate()
    result = job.finish()
    assert (result.code, result.err) == (143, "farandole: ended by SIGTERM before all nodes had come.\n")
    job.wait_until_nothing_is_left(5)


def test_another_program_at_the_rendezvous_is_named(node: Callable, launch: Callable, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = ["--nnodes", 2, "--node-rank", 1, "--rendezvous", f"127.0.0.1:{server.getsockname()[1]}"]
        job = launch(*place, "--key-file", "key", "true")
        made, _ = server.accept()
        made.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        result = job.finish()
        made.close()
    assert result.code == 2 and "another program answers at 127.0.0.1" in result.err


def test_the_options_may_stand_in_a_file_and_the_environment(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "run.toml").write_text('[run]\nnnodes = 2\nrendezvous = "nowhere:1"\nkey-file = "key"\n')
    result = run("--config-file", "run.toml", "--dry-run", "true", env={"FARANDOLE_RUN_NODE_RANK": "1"})
    assert (result.code, result.err) == (0, "") and "node 1" in result.out
    result = run("--config-file", "run.toml", "-H", "h1:2", "true", env={"FARANDOLE_RUN_NODE_RANK": "1"})
    assert result.code == 2 and "give one of -H and --nnodes" in result.err


def test_a_preview_shows_all_nodes_and_starts_nothing(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    place = ["--nnodes", 2, "--node-rank", 1, "--rendezvous", "nowhere:1", "--key-file", "key"]
    result = run(*place, "--dry-run", "/bin/true")
    assert result.out == "rank  host    local rank  command\n0     node 0  0           /bin/true\n" + (
        "1     node 1  0           /bin/true\n"
    )
