"""`farandole.run(..., min_np=, max_np=)`: ranks of a function are lost, replaced or leave; the rest goes on."""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
from pathlib import Path
from typing import Any

import farandole
import pytest
from farandole import elastic
from farandole._functions import outcome
from farandole._start import frames
from farandole.launch import JobResult
from farandole.launch.events import JobEnded

pytestmark = pytest.mark.timeout(120)


def train(steps: int, what: dict[int, int], marks: str = "", size: int = 0) -> tuple[int, int, int]:
    """Ranks of the start get a signal at step 3. With `size`: until so many ranks are there, and 10 steps more.

    Returns the rank, the size and the steps.
    """
    farandole.init()
    if marks:
        Path(marks, str(os.getpid())).touch()
    first = int(os.environ.get("FARANDOLE_JOINS") or farandole.rank())

    @elastic.run
    def run(state: elastic.ObjectState) -> int:
        while state.left:
            total = len(farandole.allgather_object(state.step))
            state.step += 1
            state.left -= not size or (total == size and state.step > 4)
            if state.step == 3 and first in what:
                os.kill(os.getpid(), what.pop(first))
            state.commit()
            time.sleep(0.01 if size else 0)
        return state.step

    step = run(elastic.ObjectState(step=0, left=10 if size else steps))
    return farandole.rank(), farandole.size(), step


def test_results_are_of_the_ranks_that_finish() -> None:
    assert farandole.run(train, (20, {1: signal.SIGKILL}), np=3, min_np=2) == [(0, 2, 20), (1, 2, 20)]


def test_newcomers_call_the_function_too(tmp_path: Path) -> None:
    options = {"max_np": 3, "blacklist_cooldown_range": (0.1, 1), "reset_limit": 5, "elastic_timeout": 60}
    results = farandole.run(train, (0, {0: signal.SIGKILL}, str(tmp_path), 3), np=3, min_np=2, **options)
    assert [each[:2] for each in results] == [(0, 3), (1, 3), (2, 3)]
    assert len({each[2] for each in results}) == 1 and len(list(tmp_path.iterdir())) == 4


def test_hosts_may_be_discovered(tmp_path: Path) -> None:
    (tmp_path / "discover").write_text("#!/bin/sh\necho localhost\n")
    (tmp_path / "discover").chmod(0o755)
    options = {"host_discovery_script": tmp_path / "discover", "slots_per_host": 2}
    assert farandole.run(train, (5, {}), np=2, **options) == [(0, 2, 5), (1, 2, 5)]


def test_a_rank_that_is_told_to_leave_has_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    assert farandole.run(train, (20, {0: signal.SIGTERM}), np=2, min_np=1) == [(0, 1, 20)]
    assert "leaves after SIGTERM" in capfd.readouterr().err
    with pytest.raises(farandole.FarandoleError, match="all ranks left before the function returned"):
        farandole.run(train, (20, {0: signal.SIGTERM}), min_np=1)


def test_too_few_ranks_are_an_error_in_the_launchers_words() -> None:
    with pytest.raises(farandole.FarandoleError, match=r"^rank \d on localhost .* killed by SIGKILL") as caught:
        farandole.run(train, (1000, {1: signal.SIGKILL}), np=2, min_np=2)
    assert "1 of 2 ranks is left (rank 0), and --min-np asks for 2" in str(caught.value)


def test_a_function_without_elastic_run_is_told_of_it() -> None:
    def plain() -> None:
        farandole.init()
        if farandole.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        farandole.barrier()

    with pytest.raises(farandole.FarandoleError, match=r"^rank 1 on localhost .* killed by SIGKILL") as caught:
        farandole.run(plain, np=2, min_np=1)
    assert "rank 1 ended while some ranks were outside of elastic.run, so the job ends" in str(caught.value)


def test_a_mistake_ends_the_job_as_ever() -> None:
    def mistaken() -> None:
        farandole.init()

        @elastic.run
        def run(state: elastic.ObjectState) -> None:
            while True:
                state.step += 1
                state.commit()
                if state.step == 5 and farandole.rank() == 1:
                    raise KeyError("no such batch")

        run(elastic.ObjectState(step=0))

    with pytest.raises(KeyError, match="no such batch") as caught:
        farandole.run(mistaken, np=3, min_np=1)
    assert "rank 1 of 3" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"min_np": 3}, ValueError, "min_np=3 is more than np=2"),
        ({"min_np": 1, "max_np": 1}, ValueError, "max_np=1 is fewer than np=2"),
        ({"min_np": 0}, ValueError, "min_np must be a whole number of at least 1, not 0"),
        ({"min_np": True}, TypeError, "min_np must be a whole number of at least 1, not True"),
        ({"min_np": 1, "max_np": "4"}, TypeError, "max_np must be a whole number of at least 1, not '4'"),
        ({"reset_limit": 4}, ValueError, "reset_limit is for jobs that lose ranks and go on; give min_np=1"),
        ({"slots_per_host": 4}, ValueError, "slots_per_host is for jobs that lose ranks and go on"),
        ({"host_discovery_script": "x", "hosts": "h:2"}, ValueError, "takes hosts or host_discovery_script, not both"),
        ({"elastic_timeout": 4}, ValueError, "elastic_timeout is for jobs that lose ranks and go on"),
        ({"min_np": 1, "blacklist_cooldown_range": 4}, TypeError, "must be two numbers, as in (1, 60), not 4"),
        ({"min_np": 1, "blacklist_cooldown_range": (4, 1)}, RuntimeError, "the smaller first, not 4 1"),
        ({"min_np": 1, "elastic_timeout": 0}, RuntimeError, "--elastic-timeout must be a positive number"),
    ],
)
def test_what_cannot_be_is_one_sentence(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)) as caught:
        farandole.run(print, np=2, **options)
    assert "\n" not in str(caught.value)


def _left(payload: object, traceback: str = "") -> bytearray:
    packed = pickle.dumps(payload)
    return bytearray(frames.message("outcome", traceback=traceback, size=len(packed)) + packed)


def test_errors_of_ranks_without_which_the_job_has_gone_on_are_no_failure() -> None:
    left = {4: _left("d"), 1: _left(ValueError(), "excluded"), 0: _left("a"), 2: _left("")}
    left[2].pop()  # it was killed while it wrote
    result = JobResult(0, JobEnded(0), left)
    assert outcome.results(result, 4, is_elastic=True) == ["a", "d"]
    with pytest.raises(ValueError):
        outcome.results(result, 4)
    with pytest.raises(ValueError):
        outcome.results(JobResult(1, JobEnded(1, culprit=1), left), 4, is_elastic=True)
