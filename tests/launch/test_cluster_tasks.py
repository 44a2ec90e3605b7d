"""Functions as ranks in the tasks of an engine: here processes that this test starts."""

from __future__ import annotations

import io
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import farandole
import psutil
import pytest
from farandole._cluster import driver_log
from farandole._cluster import hosts as cluster_hosts
from farandole._cluster.hosts import Task
from farandole._start import connection, frames
from farandole.engine import Call, DriverLog, TaskServer
from farandole.launch.schedulers import tasks

SECONDS = 30
SERVE = """
import json, sys
from farandole.engine import Invitation, serve
endpoint, key, order, node = json.loads(sys.argv[1])
invitation = Invitation(tuple(endpoint), bytes.fromhex(key))
own = {"name": node, "identity": node, "variables": {"FARANDOLE_NODE": node}} if node else {}
serve(invitation, order=order, secret=b"s" * 32, leave_out=["SECRET_"], **own)
"""


def test_tasks_of_one_machine_are_one_host() -> None:
    tasks = [Task(2, "b", "h2"), Task(0, "a", "10.0.0.1"), Task(1, "b", "h2", slots=2, gpus=("0", "1"))]
    tasks.append(Task(3, "a", "10.0.0.1", gpus=("5",)))
    hosts = cluster_hosts.by_host(tasks, {})
    assert cluster_hosts.listed(hosts) == "10.0.0.1:2,h2:3"
    assert [[task.order for task in host.tasks] for host in hosts] == [[0, 3], [1, 2]]
    assert [host.gpus for host in hosts] == [["5"], ["0", "1"]]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("worker-1.local", "worker-1.local"),
        ("my_container", "my-container"),
        ("127.0.0.1", "executor"),
        ("", "executor"),
        ("10.0.0.7", "10.0.0.7"),
        ("fd00::1", "fd00::1"),
        ("-rf", "rf"),
    ],
)
def test_the_launcher_gets_names_that_it_accepts_elsewhere(wanted: str, name: str) -> None:
    assert cluster_hosts.free_name(wanted, []) == name


def test_two_hosts_have_two_names() -> None:
    hosts = cluster_hosts.by_host([Task(order, str(order), "fd00::1") for order in range(3)], {})
    assert cluster_hosts.listed(hosts) == "[fd00::1]:1,host-2:1,host-3:1"
    assert [host.name for host in cluster_hosts.by_host([Task(0, "a", "H"), Task(1, "b", "h")], {})] == ["H", "h-2"]


@pytest.mark.parametrize(("shows_all", "text"), [(True, "[0] a\n[0] b\nrest"), (False, "[0] b\n")])
def test_lines_for_the_driver_are_told_from_others(shows_all: bool, text: str) -> None:
    shown = io.StringIO()
    log = DriverLog(shown, shows_all)
    for piece in ("[0] a\n[0] \x1efaran", "dole\x1eb", "\nre", "st"):
        log.write(piece)
    log.flush()
    assert shown.getvalue() == text


def test_what_is_waited_for_is_said_again_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(driver_log, "_AGAIN_SECONDS", 0.0)
    tell = driver_log.WaitMessages(0.0)
    for free in (0, 0, 1, 1):
        tell(f"{free} of 2 places are free")
    tell("")
    assert capsys.readouterr().err.splitlines() == [f"farandole: {free} of 2 places are free" for free in (0, 1)]


def test_a_stranger_is_not_taken_in() -> None:
    with TaskServer("127.0.0.1") as server:
        with socket.create_connection(server.endpoint) as stranger:
            stranger.settimeout(SECONDS)
            with pytest.raises(connection.FAILURES):
                connection.prove(stranger, b"another key", is_listener=False)
        assert not server.wait(1, 0.2)


def test_a_task_that_has_gone_is_no_longer_counted() -> None:
    with TaskServer("127.0.0.1") as server, _task(server, 0) as task:
        assert server.wait(1, SECONDS)
        task.kill()
        task.wait()
        assert _within(lambda: not server.tasks())


@contextmanager
def _task(server: TaskServer, order: int, node: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """`node`: a host of its own; by default this machine."""
    import json

    about = json.dumps([server.endpoint, server.key.hex(), order, node])
    around = {**os.environ, "SECRET_OF_ENGINE": "1"}
    with subprocess.Popen([sys.executable, "-c", SERVE, about], env=around) as task:
        try:
            yield task
        finally:
            task.kill()


@contextmanager
def _job(
    fn: Callable[..., object], tasks: int, *args: object
) -> Iterator[tuple[Call, TaskServer, list[subprocess.Popen[bytes]]]]:
    with ExitStack() as stack:
        call = stack.enter_context(Call(fn, args, None, "test.run"))
        server = stack.enter_context(TaskServer("127.0.0.1"))
        started = [stack.enter_context(_task(server, order)) for order in range(tasks)]
        assert server.wait(tasks, SECONDS)
        yield call, server, started


def _within(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def _sum(base: int) -> tuple[list[int], int, bool]:
    import farandole.numpy as hvd
    import numpy

    hvd.init()
    print("printed", flush=True)
    farandole.engine.log_to_driver("for\nthe driver")
    total = hvd.allreduce(numpy.array([base + hvd.rank()]), op=hvd.Sum)
    return total.tolist(), hvd.rank(), "SECRET_OF_ENGINE" in os.environ


def test_results_come_in_order_and_tasks_end_with_the_job() -> None:
    shown = io.StringIO()
    with _job(_sum, 2, 10) as (call, server, tasks):
        results = call.run(server, "Tests", 2, stdout=DriverLog(shown, shows_all=False))
        assert results == [([21], 0, False), ([21], 1, False)]
        server.__exit__()
        assert [task.wait(SECONDS) for task in tasks] == [0, 0]
    lines = sorted(line.rpartition("] ")[2] for line in shown.getvalue().splitlines())
    assert lines == ["for", "for", "the driver", "the driver"]


def _fail() -> None:
    import farandole.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise LookupError("on purpose")
    hvd.barrier()


def test_the_first_failure_reaches_the_caller() -> None:
    with _job(_fail, 2) as (call, server, _), pytest.raises(LookupError, match="on purpose") as caught:
        call.run(server, "Tests", 2)
    assert "rank 1 of 2" in str(caught.value.__cause__)


def _sleep() -> None:
    import farandole.numpy as hvd

    hvd.init()
    print("pid", os.getpid(), flush=True)
    time.sleep(600)


def test_a_killed_task_leaves_nothing_and_is_named() -> None:
    pids: list[int] = []

    class Killer(io.StringIO):
        def write(self, text: str) -> int:
            pids.extend(int(line.split()[-1]) for line in text.splitlines() if " pid " in line)
            if len(pids) == 2:
                os.kill(tasks[0].pid, signal.SIGKILL)
            return len(text)

    lost = pytest.raises(farandole.FarandoleError, match=r"rank [01] on .* was lost first")
    with _job(_sleep, 2) as (call, server, tasks), lost:
        call.run(server, "Tests", 2, stdout=Killer())
    assert len(pids) == 2
    assert _within(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_task_that_ends_before_the_job_starts_is_named() -> None:
    with _job(_sleep, 2) as (call, server, tasks):
        tasks[0].kill()
        tasks[0].wait()
        with pytest.raises(farandole.FarandoleError, match="a task of Tests has ended, or was lost, before the job"):
            call.run(server, "Tests", 2)


def test_the_next_task_of_a_host_leads_when_the_first_has_gone() -> None:
    with TaskServer("127.0.0.1") as server, _task(server, 0) as first, _task(server, 1) as second:
        assert server.wait(2, SECONDS)
        (host,) = server.hosts()
        connect = tasks.scheduler("Tests", server.name).connect
        assert connect is not None

        def greets(way: socket.socket) -> bool:
            way.settimeout(SECONDS)
            return way.recv(4096).startswith(frames.GREETING)

        with connect(host.name) as way:
            assert greets(way)
            first.kill()
            assert _within(lambda: [task.order for task in server.tasks()] == [1])
        with connect(host.name) as way, connect(host.name) as nobody:
            assert greets(way) and not greets(nobody)
        assert second.poll() is None and [task.order for task in server.tasks()] == [1]
        server.release(1)
        assert not server.hosts()


def _count_steps(folder: str) -> list[int]:
    import farandole.elastic
    import farandole.numpy as hvd
    import numpy

    hvd.init()
    state = farandole.elastic.ObjectState(sizes=[])

    @farandole.elastic.run
    def train(state: farandole.elastic.ObjectState) -> None:
        while not hvd.allreduce(numpy.array(float(os.path.exists(f"{folder}/stop"))), op=hvd.Max):
            state.sizes = [*state.sizes, hvd.size()]
            if hvd.rank() == 0:
                Path(folder, "size").write_text(f"{hvd.size()}")
            time.sleep(0.02)
            state.commit()

    train(state)
    return [size for size, _ in itertools.groupby(state.sizes)]


@pytest.mark.timeout(90)
def test_tasks_come_and_go_while_an_elastic_job_runs(tmp_path: Path) -> None:
    results: list[list[int]] = []

    def trains_with(ranks: int) -> bool:
        size = tmp_path / "size"
        return _within(lambda: size.exists() and size.read_text() == str(ranks))

    with ExitStack() as stack:
        call = stack.enter_context(Call(_count_steps, (str(tmp_path),), None, "test.run"))
        server = stack.enter_context(TaskServer("127.0.0.1"))
        stack.enter_context(_task(server, 0, "n0"))
        lost = stack.enter_context(_task(server, 1, "n1"))
        assert server.wait(2, SECONDS)
        options = {"min_np": 1, "max_np": 2}
        job = threading.Thread(target=lambda: results.extend(call.run(server, "Tests", 2, options=options)))
        job.start()
        assert trains_with(2)
        lost.kill()
        assert trains_with(1)
        stack.enter_context(_task(server, 2, "n2"))
        assert trains_with(2)
        server.release(2)
        assert trains_with(1)
        (tmp_path / "stop").touch()
        job.join(SECONDS)
    assert results == [[2, 1, 2, 1]]


def test_a_part_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(farandole.ArgumentTypeError, match=r"test\.run cannot send .*its argument 0"):
        Call(_sum, (sys.stdout,), None, "test.run")


DRIVER = """
import sys
from farandole.engine import Call, TaskServer
from test_cluster_tasks import _sleep
with Call(_sleep, (), None, "test.run") as call, TaskServer("127.0.0.1") as server:
    print(server.port, server.key.hex(), flush=True)
    assert server.wait(2, 30)
    call.run(server, "Tests", 2)
"""


def test_a_killed_driver_leaves_nothing() -> None:
    around = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])}
    with ExitStack() as stack:
        driver = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", DRIVER], env=around, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(driver.kill)
        assert driver.stdout is not None
        port, key = driver.stdout.readline().split()
        server = TaskServer("127.0.0.1", port=int(port), key=bytes.fromhex(key))
        tasks = [stack.enter_context(_task(server, order)) for order in range(2)]
        pids = [int(driver.stdout.readline().split()[-1]) for _ in range(2)]
        driver.kill()
        assert _within(lambda: not any(map(psutil.pid_exists, pids)))
        assert [task.wait(SECONDS) for task in tasks] == [0, 0]
