"""Jobs in a classic session of Spark with two executors."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole
import farandole_spark
import psutil
import pytest
import ranks

LONG = os.environ.get("FARANDOLE_LONG") == "1"
RUNS = 20 if LONG else 3
LINES = 10_000
TOLD_SECONDS = 10.0  # from a fault to its sentence


def about(base: int) -> dict[str, Any]:
    import farandole.numpy as hvd
    import numpy

    hvd.init()
    total = hvd.allreduce(numpy.array([base + hvd.rank()]), op=hvd.Sum)
    return {
        "rank": hvd.rank(),
        "local": (hvd.local_rank(), hvd.local_size()),
        "sum": int(total[0]),
        "first_at": time.time(),
        "shifted": ranks.shifted(hvd.rank()),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "secrets": [name for name in os.environ if "SECRET" in name],
    }


def test_results_come_in_order(warm: Any, nothing_left: Callable[[], bool]) -> None:
    found = farandole_spark.run(about, (10,), num_proc=2)
    assert [each["rank"] for each in found] == [0, 1]
    assert [each["local"] for each in found] == [(0, 2), (1, 2)]  # both executors are on this host
    assert [each["sum"] for each in found] == [21, 21]
    assert [each["shifted"] for each in found] == [100, 101]
    assert [each["threads"] for each in found] == ["1", "1"]
    assert [each["secrets"] for each in found] == [[], []]
    assert nothing_left()


def test_by_default_all_slots_are_taken(warm: Any) -> None:
    assert len(farandole_spark.run(about, (0,), env={"OMP_NUM_THREADS": "3"})) == 2
    with pytest.warns(DeprecationWarning):
        runner = farandole_spark.HorovodRunner(np=0)
    assert runner.run(about, base=1)["sum"] == 3


def test_many_runs_leave_no_process_and_no_file(warm: Any, around: Path, nothing_left: Callable[[], bool]) -> None:
    watched = [Path("/dev/shm"), Path("/tmp"), Path.cwd()]
    farandole_spark.run(about, (0,), num_proc=2)
    before = {path for folder in watched for path in folder.iterdir()}
    for _ in range(RUNS):
        farandole_spark.run(about, (0,), num_proc=2)
    assert nothing_left()
    after = {path for folder in watched for path in folder.iterdir()}
    assert not {path for path in after - before if "farandole" in path.name or path.parent == Path("/dev/shm")}
    assert threading.active_count() < 20


def test_the_time_to_the_first_collective_is_told(warm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    context, own = warm.sparkContext, []
    for _ in range(3):
        began = time.time()
        context.parallelize(range(2), 2).barrier().mapPartitions(list).collect()
        own.append(time.time() - began)
    ours = []
    for _ in range(3):
        began = time.time()
        found = farandole_spark.run(about, (0,), num_proc=2)
        ours.append(max(each["first_at"] for each in found) - began)
    told = f"run to first collective {sorted(ours)[1]:.2f} s, an empty barrier stage of Spark {sorted(own)[1]:.2f} s"
    with capsys.disabled():
        print(f"\n{told}")


def fail() -> None:
    import farandole.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise LookupError("on purpose", time.time())
    hvd.barrier()


def test_the_exception_of_a_rank_reaches_the_driver(warm: Any, nothing_left: Callable[[], bool]) -> None:
    with pytest.raises(LookupError, match="on purpose") as caught:
        farandole_spark.run(fail, num_proc=2)
    assert time.time() - caught.value.args[1] < TOLD_SECONDS
    assert "rank 1 of 2" in str(caught.value.__cause__) and "in fail" in str(caught.value.__cause__)
    assert nothing_left()


def test_more_slots_than_there_are_is_an_error_at_once(warm: Any) -> None:
    began = time.monotonic()
    with pytest.raises(farandole.ArgumentError, match="num_proc=9 asks for 9 slots, and the cluster has 2 slots"):
        farandole_spark.run(about, (0,), num_proc=9)
    assert time.monotonic() - began < TOLD_SECONDS


def _running_tasks(tracker: Any) -> int:
    stages = (tracker.getStageInfo(each) for each in tracker.getActiveStageIds())
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def test_slots_that_others_have_are_waited_for(warm: Any, capfd: pytest.CaptureFixture[str]) -> None:
    context = warm.sparkContext

    def occupy() -> None:
        context.parallelize(range(1), 1).foreach(lambda _: time.sleep(12))

    other = threading.Thread(target=occupy)
    other.start()
    tracker, deadline = context.statusTracker(), time.monotonic() + 20
    while not _running_tasks(tracker) and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(farandole.FarandoleError, match="start timeout: still waiting for 2 slots, 1 free"):
        farandole_spark.run(about, (0,), num_proc=2, start_timeout=2)
    assert len(farandole_spark.run(about, (0,), num_proc=2)) == 2
    other.join()
    assert "farandole: waiting for 2 slots, 1 free" in capfd.readouterr().err


def linger() -> None:
    import farandole.numpy as hvd

    hvd.init()
    print("rank runs", flush=True)
    time.sleep(600)


class AtLine(io.StringIO):
    """Calls a function once both ranks have printed their line."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act, self._seen, self.acted_at = act, 0, 0.0

    def write(self, text: str) -> int:
        self._seen += text.count("rank runs")
        if self._seen == 2 and not self.acted_at:
            self.acted_at = time.monotonic()
            self._act()
        return len(text)


def executors() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that has ended meanwhile
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process)
    return found


def test_a_killed_executor_is_told_in_one_sentence(warm: Any, nothing_left: Callable[[], bool]) -> None:
    shown = AtLine(executors()[0].kill)
    with pytest.raises(farandole.FarandoleError, match=r"rank [01] on \S+ .*was lost") as caught:
        farandole_spark.run(linger, num_proc=2, stdout=shown)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert "Traceback" not in str(caught.value)
    assert nothing_left()


def test_an_interrupt_ends_everything(warm: Any, nothing_left: Callable[[], bool]) -> None:
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    shown = AtLine(lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt):
            farandole_spark.run(linger, num_proc=2, stdout=shown)
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert nothing_left()
    assert warm.sparkContext.statusTracker().getActiveStageIds() in ([], ())


def test_a_stage_that_spark_cancels_is_told(warm: Any, nothing_left: Callable[[], bool]) -> None:
    shown = AtLine(warm.sparkContext.cancelAllJobs)
    with pytest.raises(farandole.FarandoleError, match="was lost"):
        farandole_spark.run(linger, num_proc=2, stdout=shown)
    assert time.monotonic() - shown.acted_at < TOLD_SECONDS
    assert nothing_left()


def write_lines(count: int) -> None:
    import farandole.numpy as hvd

    hvd.init()
    for number in range(count):
        print(f"line {number} of {hvd.rank()}")


def test_all_lines_come_in_order(warm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("sys.stdout", shown)
    farandole_spark.HorovodRunner(np=2, driver_log_verbosity="all").run(write_lines, count=LINES)
    lines = [line.partition("] ")[2] for line in shown.getvalue().splitlines()]
    for rank in range(2):
        assert [line for line in lines if line.endswith(f"of {rank}")] == [f"line {n} of {rank}" for n in range(LINES)]
    assert len(lines) == 2 * LINES


def tell() -> int:
    import farandole.numpy as hvd

    hvd.init()
    print("not for the driver", flush=True)
    farandole_spark.log_to_driver(f"from {hvd.rank()}")
    return 7 + hvd.rank()


def test_by_default_only_lines_for_the_driver_are_shown(warm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("sys.stdout", shown)
    assert farandole_spark.HorovodRunner(np=2).run(tell) == 7
    assert sorted(line.partition("] ")[2] for line in shown.getvalue().splitlines()) == ["from 0", "from 1"]


def test_a_variable_that_cannot_be_pickled_is_named(warm: Any) -> None:
    lock = threading.Lock()

    def holds() -> object:
        return lock

    with pytest.raises(farandole.ArgumentTypeError, match=r"closure variable 'lock', of type _thread\.lock"):
        farandole_spark.run(holds, num_proc=2)


def test_a_driver_that_executors_do_not_reach_is_told(warm: Any) -> None:
    began = time.monotonic()
    with pytest.raises(farandole.FarandoleError, match=r"cannot connect to the driver at 192\.0\.2\.1:"):
        farandole_spark.run(about, (0,), num_proc=2, driver_address="192.0.2.1")
    assert time.monotonic() - began < 2 * TOLD_SECONDS
