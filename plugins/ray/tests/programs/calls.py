"""Calls, results, objects and failures on two nodes."""

import threading
import time

import pytest
import ray
from cluster import nodes
from farandole import FarandoleError
from farandole_ray import RayExecutor
from horovod.ray.elastic import ElasticRayExecutor, RayHostDiscovery


def place(base):
    import farandole.numpy as hvd
    import numpy as np

    hvd.init()
    total = hvd.allreduce(np.ones(3) * (hvd.rank() + 1), op=hvd.Sum)
    assert total.tolist() == [3.0, 3.0, 3.0]
    print("rank", hvd.rank(), "is here")
    return base + hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank()


def fail():
    import farandole.numpy as hvd
    import numpy as np

    hvd.init()
    if hvd.rank() == 1:
        raise KeyError("of rank one")
    hvd.allreduce(np.ones(3))


def logs():
    import farandole.numpy as hvd
    from horovod.ray import ray_logger

    hvd.init()
    for step in range(3):
        ray_logger.log({"rank": hvd.rank(), "step": step})
    return hvd.rank()


def steps_of(heard):
    """The steps that each rank has logged, in the order in which the driver heard of them."""
    return [[each["step"] for each in heard if each["rank"] == rank] for rank in (0, 1)]


class Counter:
    """An executor's class."""

    def __init__(self, count):
        self.count = count

    def add(self):
        self.count += 1
        return self.count


def exit_with_3():
    import os

    os._exit(3)


def within(seconds, error, call, *words):
    began = time.monotonic()
    with pytest.raises(error) as caught:
        call()
    assert time.monotonic() - began < seconds
    said = str(caught.value)
    assert all(word in said for word in words), said
    return caught.value


with nodes(2):
    executor = RayExecutor(num_workers=2)
    within(10, FarandoleError, lambda: executor.run(place, (1,)), "call start() first")
    executor.start(extra_env_vars={"ANSWER": "42"})
    assert executor.run(place, args=(10,)) == [(10, 2, 0, 0), (11, 2, 0, 1)]
    assert executor.run(lambda: __import__("os").environ["ANSWER"]) == ["42", "42"]
    assert ray.get(executor.run_remote(place, kwargs={"base": 20})) == [(20, 2, 0, 0), (21, 2, 0, 1)]
    heard = []
    assert executor.run(logs, callbacks=[heard.append]) == [0, 1] and steps_of(heard) == [[0, 1, 2]] * 2, heard
    within(10, TypeError, lambda: executor.run(logs, callbacks=[3]), "callbacks must be functions, not int")
    lock = threading.Lock()
    within(10, TypeError, lambda: executor.run(lambda: lock), "its global variable 'lock'", "RayExecutor cannot send")
    error = within(10, KeyError, lambda: executor.run(fail), "of rank one")
    assert "rank 1 of 2:" in str(error.__cause__) and "in fail" in str(error.__cause__)
    within(10, FarandoleError, lambda: executor.run(place, (1,)), "the ranks have ended", "start() for new ones")
    executor.shutdown()

    def refuses(values):
        raise ZeroDivisionError(values)

    executor.start()
    within(10, ZeroDivisionError, lambda: executor.run(logs, callbacks=[refuses]), "step")
    within(10, FarandoleError, lambda: executor.run(place, (1,)), "the ranks have ended")
    executor.shutdown()

    executor.start(Counter, executable_args=[5])
    within(10, FarandoleError, executor.start, "started already")
    assert executor.execute(lambda each: each.add()) == [6, 6]
    assert executor.execute_single(lambda each: each.add()) == 7
    assert executor.execute(lambda each: each.add()) == [8, 7]
    within(10, FarandoleError, lambda: executor.execute(lambda _: exit_with_3()), "failed first: exit code 3")
    executor.shutdown()

    within(10, FarandoleError, RayExecutor(num_workers=9).start, "9 workers of 1 CPU each", "2 nodes have places for 2")
    spread = RayExecutor(num_hosts=2, num_workers_per_host=2)
    within(10, FarandoleError, spread.start, "4 workers of 1 CPU each on 2 nodes", "places for 0")

    elastic = ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2), env_vars={"ANSWER": "7"})
    elastic.start()
    assert elastic.run(lambda: place(int(__import__("os").environ["ANSWER"]))) == [(7, 2, 0, 0), (8, 2, 0, 1)]
    within(20, KeyError, lambda: elastic.run(fail), "of rank one")
    heard.clear()
    assert elastic.run(logs, callbacks=[heard.append]) == [0, 1] and steps_of(heard) == [[0, 1, 2]] * 2, heard
    assert [*RayHostDiscovery().find_available_hosts_and_slots().values()] == [2]  # both nodes have one address
    grows = RayExecutor(num_workers=2, min_workers=1)
    within(10, ValueError, lambda: grows.execute(place), "has ranks only during run()")

    executor = RayExecutor(num_hosts=2)
    executor.start()
    impatient = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=2), num_workers=2)
    within(10, FarandoleError, impatient.start, "waiting for 2 places, 0 free, after 2 s")
    threading.Timer(1, lambda: ray.kill(executor._where[1].actor)).start()
    within(10, FarandoleError, lambda: executor.run(time.sleep, (60,)), "rank 1 on ", "was lost first")
    executor.shutdown()
    assert ray.util.placement_group_table() and all(
        each["state"] == "REMOVED" for each in ray.util.placement_group_table().values()
    )

    executor = RayExecutor(num_workers=1)
    executor.start()
    ray.shutdown()
    executor.shutdown()
    assert not ray.is_initialized()  # giving actors back has not started another Ray
