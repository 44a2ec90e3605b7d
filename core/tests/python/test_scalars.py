"""Scalars for TensorBoard: what they say, and what ends with them."""

import os
import time

import farandole
import farandole.numpy as fnp
import numpy as np
import psutil
import pytest
from farandole.testing import World, world

pytestmark = pytest.mark.timeout(60)


class Writer:
    def __init__(self):
        self.written = []

    def add_scalar(self, tag, value, step):
        self.written.append((tag, value, step))


def with_a_late_rank():
    """Rank 1 computes for 20 ms, the others wait."""
    writer = Writer()
    scalars = farandole.StepScalars(writer, every=10) if farandole.rank() == 0 else None
    until, is_over = time.monotonic() + 20, False
    while not is_over:
        time.sleep(0.02 * (farandole.rank() == 1))
        fnp.allreduce(np.ones(1000), name="gradient")
        is_over = False
        if scalars is not None:
            scalars.step()
            is_over = "farandole/last_rank" in scalars.latest or time.monotonic() > until
        is_over = bool(fnp.broadcast(np.array([is_over]), 0)[0])
    if scalars is None:
        return None
    (reader,) = psutil.Process().children()
    scalars.close()
    assert not reader.is_running()
    assert scalars.latest == {tag: value for tag, value, _ in writer.written[-len(scalars.latest) :]}
    return scalars.latest, [step for tag, _, step in writer.written if tag == "farandole/step_seconds"]


def test_they_name_the_rank_that_all_wait_for():
    with World(2) as fresh:  # operations of other tests in the last 5 s would be in the shares, too
        found, steps = fresh.run(with_a_late_rank)[0]
    assert steps == list(range(10, 10 * len(steps) + 1, 10))
    assert 0.02 < found["farandole/step_seconds"] < 1
    assert found["farandole/last_rank"] == 1
    wait_ratio = 0.3 * 0.02 / found["farandole/step_seconds"]  # on a busy machine a step takes more than the 20 ms
    assert wait_ratio < found["farandole/waiting_ratio"] <= found["farandole/in_operations_ratio"] <= 1
    assert wait_ratio < found["farandole/last_rank_ratio"] <= 1
    assert found["farandole/bytes_per_second"] > 0


def alone():
    scalars = farandole.StepScalars(every=2)
    for _ in range(3):
        scalars.step()
    assert list(scalars.latest) == ["farandole/step_seconds"]
    assert not psutil.Process(os.getpid()).children()
    with pytest.raises(ValueError, match="every=0 must be at least 1"):
        farandole.StepScalars(every=0)


def test_a_world_of_one_has_the_time_of_steps_alone():
    world(1).run(alone)


def test_before_init():
    with pytest.raises(farandole.NotInitializedError):
        farandole.StepScalars()
