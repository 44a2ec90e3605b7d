"""init and shutdown: alone, repeated, interrupted."""

import os
import signal
import subprocess
import sys
import threading
import time

import farandole
import pytest
from farandole.testing import RanksFailed, World, rank_environments, spawn

pytestmark = pytest.mark.timeout(180)


def on_too_few_cores_and_on_one_each():
    import farandole.numpy as fnp
    from farandole._runtime.native import core

    every = sorted(os.sched_getaffinity(0))
    rank = int(os.environ["FARANDOLE_RANK"])
    found = []
    for cores in (every[:1], every[rank : rank + 1] or every):
        os.sched_setaffinity(0, cores)
        fnp.init()
        found.append(core.info()["shares_cores"])
        fnp.shutdown()
    return found


def test_the_cores_of_all_ranks_are_counted():
    assert spawn(2, on_too_few_cores_and_on_one_each, timeout=60) == [[True, len(os.sched_getaffinity(0)) < 2]] * 2


def resources():
    """(descriptors, threads, resident bytes, mappings) of this process."""
    with open("/proc/self/statm") as statm, open("/proc/self/maps") as maps:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        mappings = len(maps.readlines())
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), resident, mappings


def live_often(times):
    import farandole.numpy as fnp
    import numpy as np

    def once():
        fnp.init()
        assert fnp.allreduce(np.ones(1000), op=fnp.Sum)[0] == fnp.size()
        fnp.shutdown()

    for _ in range(20):
        once()
    before, start = resources(), time.perf_counter()
    for _ in range(times):
        once()
    seconds = (time.perf_counter() - start) / times
    return before, resources(), seconds


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_200_lives_leave_nothing_behind(ranks):
    for before, after, seconds in spawn(ranks, live_often, 200, timeout=150):
        assert after[0] <= before[0], "descriptors"
        assert after[1] <= before[1], "threads"
        assert after[2] <= before[2] + 4 * 2**20, "resident memory"
        assert after[3] <= before[3] + 5, "mappings"
        assert seconds < 1.0


def init_twice():
    farandole.init()
    farandole.init()
    farandole.init(process_sets="dynamic")
    with pytest.raises(ValueError, match="initialized already: call add_process_set"):
        farandole.init(process_sets=[[0]])
    place = farandole.rank(), farandole.size(), farandole.is_homogeneous()
    farandole.shutdown()
    farandole.shutdown()
    return (*place, farandole.is_initialized())


def test_init_and_shutdown_are_idempotent():
    assert spawn(2, init_twice, timeout=60) == [(0, 2, True, False), (1, 2, True, False)]


def test_alone_everything_works():
    code = "import farandole; farandole.init(); farandole.barrier(); print(farandole.allgather_object('x'))"
    with rank_environments(1) as (environment,):
        for name in list(environment):
            if name.startswith("FARANDOLE_"):
                del environment[name]
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
    assert done.stdout == "['x']\n"


SUM = "import numpy, farandole.numpy; farandole.init(); farandole.numpy.allreduce"


@pytest.mark.parametrize(
    "call",
    [
        "farandole.init()",
        "farandole.init(); farandole.barrier()",
        f"{SUM}(numpy.ones(4))",
        f"{SUM}_async(numpy.ones(4)).wait()",
    ],
)
def test_control_c_interrupts_waiting(call):
    # A process that a shell starts in the background ignores Ctrl-C, and so do its children.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; import farandole; print('ready', flush=True); {call}"
    peer = "import farandole, time; farandole.init(); time.sleep(60)"
    with rank_environments(2) as environments:
        late = None
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environments[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline() == "ready\n"
            if call != "farandole.init()":
                late = subprocess.Popen([sys.executable, "-c", peer], env=environments[1])
            time.sleep(1.5)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=40)
            assert "KeyboardInterrupt" in error
            assert time.monotonic() - start < 30  # the peer sleeps for twice as long
        finally:
            process.kill()
            process.wait()
            if late is not None:
                late.kill()
                late.wait()


def init_in_thread():
    thread = threading.Thread(target=farandole.init)
    thread.start()
    thread.join()
    return farandole.size()


def test_init_works_in_any_thread():
    assert spawn(2, init_in_thread, timeout=60) == [2, 2]


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [(b"x" * 31, 0o600, "31 bytes"), (b"x" * 32, 0o644, "other users"), (None, 0, "cannot be read")],
)
def test_a_bad_key_file_is_named(tmp_path, monkeypatch, content, mode, words):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    for name, value in {"RANK": "0", "SIZE": "2", "LOCAL_RANK": "0", "LOCAL_SIZE": "2", "STORE": "unix:x"}.items():
        monkeypatch.setenv(f"FARANDOLE_{name}", value)
    monkeypatch.setenv("FARANDOLE_CROSS_RANK", "0")
    monkeypatch.setenv("FARANDOLE_CROSS_SIZE", "1")
    monkeypatch.setenv("FARANDOLE_KEY_FILE", str(path))
    with pytest.raises(ValueError, match=f"FARANDOLE_KEY_FILE='{path}'.*{words}.*farandole run"):
        farandole.init()
    assert not farandole.is_initialized()


def fail_on_rank_one():
    farandole.init()
    print("so far so good")
    if farandole.rank() == 1:
        raise LookupError("this is rank 1's trouble")


def test_a_failing_rank_is_shown():
    with pytest.raises(RanksFailed, match=r"rank 1 raised(.|\n)*this is rank 1's trouble"):
        spawn(2, fail_on_rank_one, timeout=60)


def test_a_rank_that_exits_is_shown():
    with World(2, init=False) as world, pytest.raises(RanksFailed, match="exited with 3"):
        world.run(leave, timeout=30)


def leave():
    print("bye", flush=True)
    os._exit(3)


def test_who_does_not_finish_is_shown_with_its_stack():
    with World(1, init=False) as world:
        world.run(os.getpid)  # it has started, however busy the machine is
        with pytest.raises(RanksFailed, match=r"did not answer within 2 s(.|\n)*sleep_long"):
            world.run(sleep_long, timeout=2)


def sleep_long():
    time.sleep(60)


def test_scripts_are_run_and_their_output_returned(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import farandole, sys\nfarandole.init()\nprint(farandole.rank(), sys.argv[1])\n")
    assert spawn(2, script, "word", timeout=60) == ["0 word\n", "1 word\n"]
    script.write_text("import sys\nprint('broken')\nsys.exit(4)\n")
    with pytest.raises(RanksFailed, match=r"exited with 4(.|\n)*broken"):
        spawn(2, script, timeout=60)
