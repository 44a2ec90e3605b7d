"""Elastic jobs in a classic session with two executors: one is killed, and the job goes on in a new stage."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole_spark
import psutil
import pytest
from test_classic import executors

STEPS, KILLED_AT = 40, 12
LOST = 10  # steps, 0.2 s of them, whose commits may be on their way when rank 0's host is lost
pytestmark = pytest.mark.timeout(240)


def train(folder: str, steps: int, killed_at: int) -> dict[str, Any]:
    """Adds up steps; both ranks write what they did, and rank 0 says when it is time to kill."""
    import farandole.elastic
    import farandole.numpy as hvd
    import numpy

    hvd.init()
    state = farandole.elastic.ObjectState(step=0, total=0.0, began=[])

    @farandole.elastic.run
    def run(state: Any) -> None:
        state.began = [*state.began, (state.step, hvd.size())]
        with open(Path(folder) / f"steps-{hvd.rank()}", "a") as log:
            while state.step < steps:
                mean = hvd.allreduce(numpy.array([float(state.step)]))
                state.total += float(mean[0])
                state.step += 1
                state.commit()
                print(state.step, file=log, flush=True)
                if state.step == killed_at and len(state.began) == 1:
                    (Path(folder) / f"{os.getpid()}-{hvd.rank()}.pid").touch()
                is_last = state.step == steps - 1 and len(state.began) == 1
                time.sleep(100 if is_last else 0.02)  # the first stage does not end before it is lost

    run(state)
    return {"rank": hvd.rank(), "total": state.total, "began": state.began}


def lose_one(folder: Path, victim: str, commits: Path | None, spark: Any = None) -> None:
    """A job whose first stage loses an executor, or rank 1; it goes on from the last commit, and no step is lost."""
    first_executor = executors()[0]

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not (at_step := [*folder.glob("*-1.pid")]) and time.monotonic() < deadline:
            time.sleep(0.01)
        rank = psutil.Process(int(at_step[0].name.partition("-")[0]))
        (first_executor if victim == "executor" else rank).kill()

    killer = threading.Thread(target=kill)
    killer.start()
    found = farandole_spark.run_elastic(
        train, (str(folder), STEPS, KILLED_AT), num_proc=2, min_num_proc=1, commits=commits, spark=spark
    )
    killer.join()
    assert [each["rank"] for each in found] == list(range(len(found)))
    assert {each["total"] for each in found} == {sum(range(STEPS))}
    assert found[0]["began"][0] == (0, 2) and len(found[0]["began"]) == 2
    goes_on = found[0]["began"][1][0] + 1
    steps = [int(line) for line in (folder / "steps-0").read_text().split()]
    reached = len(steps) - (STEPS + 1 - goes_on)
    assert steps == [*range(1, reached + 1), *range(goes_on, STEPS + 1)]
    assert reached >= KILLED_AT and reached - goes_on < LOST


@pytest.mark.parametrize(("place", "victim"), [("driver", "executor"), ("folder", "rank 1")])
def test_a_loss_costs_no_step_that_was_kept(
    warm: Any,
    tmp_path: Path,
    place: str,
    victim: str,
    nothing_left: Callable[[], bool],
    capfd: pytest.CaptureFixture[str],
) -> None:
    commits = tmp_path / "commits"
    commits.mkdir()
    lose_one(tmp_path, victim, commits if place == "folder" else None)
    assert "goes on from commit" in capfd.readouterr().err
    assert not list(commits.iterdir())
    assert nothing_left()
