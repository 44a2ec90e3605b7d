"""Strangers at the doors of a job, while it starts and while it runs: no effect on it, and nothing is answered."""

import os
import socket
import threading
import time

import farandole.numpy as fnp
import numpy as np
import pytest
import strangers
from farandole.testing import World

pytestmark = pytest.mark.timeout(120)

CONNECTIONS = 1000
SOON_S = 20.0  # for a start among strangers; alone it takes some milliseconds, and one second for each would be 1000 s


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def come(late, sign):
    """Join the world, rank `late` when the file `sign` is there; how long it took after that, and some sums."""
    place = int(os.environ["FARANDOLE_RANK"])
    while place == late and not os.path.exists(sign):
        time.sleep(0.005)
    began = time.monotonic()
    fnp.init()
    taken = time.monotonic() - began
    sums = [float(fnp.allreduce(np.full(size, place), op=fnp.Sum)[-1]) for size in (3, 5000, 300_000)]
    fnp.shutdown()
    return taken if place == late else 0.0, sums


def start_among(store, visits, env, sign):
    """Start three ranks, the last one after strangers have come to the store, each in one of the manners `visits`."""
    with strangers.crowd() as crowd, World(3, env={**env, "FARANDOLE_STORE": store}, init=False) as world:
        world.run(os.getpid)
        answers = []
        job = threading.Thread(target=lambda: answers.extend(world.run(come, 2, str(sign), timeout=60)))
        job.start()
        await_door(store)
        for manner in visits:
            crowd.knock(store, manner)
        sign.touch()
        job.join()
        heard = crowd.answers()
    assert len(answers) == 3, "a rank failed"
    assert [sums for _, sums in answers] == [[3.0, 3.0, 3.0]] * 3
    assert crowd.visits == len(visits)
    assert heard == []
    return answers[2][0]


def await_door(door):
    while (made := strangers.connect(door)) is None:
        time.sleep(0.01)
    made.close()


def store_of(kind):
    if kind == "tcp":
        return f"tcp:127.0.0.1:{free_port()}", {"FARANDOLE_ARENAS": "0"}
    return f"unix:farandole-test-{os.getpid()}-{time.monotonic_ns()}", {}


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_strangers_while_a_job_starts_have_no_effect(kind, tmp_path):
    store, env = store_of(kind)
    manners = list(strangers.MANNERS)
    visits = [manners[k % len(manners)] for k in range(CONNECTIONS)]
    assert start_among(store, visits, env, tmp_path / "come") < SOON_S


def live_often(times):
    """Leave and join the world again and again; how often the sum was right."""
    right = 0
    for _ in range(times):
        fnp.init()
        right += fnp.allreduce(np.ones(1000), op=fnp.Sum)[-1] == fnp.size()
        fnp.shutdown()
    return int(right)


def harass(pids, crowd, stop):
    """Knock at whatever door of these processes opens, as long as it lasts."""
    manners = list(strangers.MANNERS)
    while not stop.is_set():
        for door in strangers.doors_of(pids):
            crowd.knock(door, manners[crowd.visits % len(manners)])


def among_strangers(world, function, *arguments):
    """Run the function in the world while strangers try all doors; what it gave, and how many of them were let hear."""
    pids = world.run(os.getpid)
    stop = threading.Event()
    with strangers.crowd() as crowd:
        harasser = threading.Thread(target=harass, args=(pids, crowd, stop))
        harasser.start()
        try:
            answers = world.run(function, *arguments, timeout=90)
        finally:
            stop.set()
            harasser.join()
        return answers, crowd.visits, crowd.answers()


@pytest.mark.parametrize("shares_memory", ["0", "1"])
def test_strangers_at_endpoints_that_open_for_a_moment_have_no_effect(shares_memory):
    with World(3, env={"FARANDOLE_ARENAS": shares_memory}, init=False) as world:
        answers, _, heard = among_strangers(world, live_often, 40)
    assert answers == [40, 40, 40]
    assert heard == []


def reduce_for(seconds):
    """Work for so long, and 30 steps or more; how many steps, how many of them right."""
    fnp.init()
    steps = right = 0
    began = time.monotonic()
    while fnp.allreduce(np.array([time.monotonic() - began < seconds or steps < 30]), op=fnp.Min)[0]:
        steps += 1
        sums = fnp.allreduce(np.full(20_000, steps, np.float32), op=fnp.Sum)
        right += bool((sums == steps * fnp.size()).all())
    return steps, right


@pytest.mark.parametrize("shares_memory", ["0", "1"])
def test_strangers_while_a_job_runs_have_no_effect(shares_memory):
    with World(2, env={"FARANDOLE_ARENAS": shares_memory}) as world:
        answers, _, heard = among_strangers(world, reduce_for, 2.0)
    assert answers[0] == answers[1]
    assert answers[0][0] == answers[0][1] > 20
    assert heard == []


def test_a_door_is_found():
    """The test's own eyes: a listener of this process is seen, and a stranger at it is heard."""
    with socket.socket() as made, strangers.crowd() as crowd:
        made.bind(("127.0.0.1", 0))
        made.listen()
        door = f"tcp:127.0.0.1:{made.getsockname()[1]}"
        assert door in strangers.doors_of([os.getpid()])
        crowd.knock(door, "http")
        accepted, _ = made.accept()
        with accepted:
            assert accepted.recv(4096) == strangers.HTTP
            accepted.sendall(b"hello")
            time.sleep(0.05)
            assert crowd.answers() == [b"hello"]
