"""20,000 lines in the order of each rank; 20 jobs in a row that leave nothing; how soon their ranks meet."""

import contextlib
import io
import re
import tempfile
import time
from pathlib import Path

import ray
from cluster import nodes, of_ours
from farandole_ray import RayExecutor
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

LINES, JOBS = 10_000, 20


@ray.remote(num_cpus=1)
class Empty:
    """An actor as large as ours."""

    def answer(self):
        import farandole.numpy

        return farandole.numpy is not None


def rays_own():
    """Seconds in which Ray starts two actors in a placement group and ends them."""
    began = time.monotonic()
    group = placement_group([{"CPU": 1}] * 2, strategy="PACK")
    ray.get(group.ready())
    actors = [
        Empty.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index))
        for index in range(2)
    ]
    handles = [each.remote() for each in actors]
    ray.get([each.answer.remote() for each in handles])
    took = time.monotonic() - began
    for each in handles:
        ray.kill(each)
    remove_placement_group(group)
    return took


def meet():
    import farandole.numpy as hvd
    import numpy as np

    hvd.init()
    assert hvd.allreduce(np.ones(1), op=hvd.Sum) == 2
    return time.time()


def speak(lines):
    import farandole as hvd

    hvd.init()
    for number in range(lines):
        print("line", number)
    print("and no newline", end="")


def files():
    """But for the folder of flight recorders, which stays; it is empty when no job is left."""
    found = (each for folder in ("/dev/shm", tempfile.gettempdir()) for each in Path(folder).glob("*farandole*"))
    return {str(each) for each in found if not each.is_dir() or [*each.iterdir()]}


with nodes(2):
    before = files()
    executor = RayExecutor(num_workers=2)
    executor.start()
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        executor.run(speak, args=(LINES,))
    executor.shutdown()
    for rank in (0, 1):
        own = re.findall(rf"^\[{rank} .*?\] (.*)$", shown.getvalue(), re.MULTILINE)
        assert own == [*(f"line {number}" for number in range(LINES)), "and no newline"], own[-3:]

    own, start, run = [], [], []
    for job in range(JOBS):
        own += [rays_own()] if job % 4 == 0 else []
        began = time.time()
        executor.start()
        start.append(time.time() - began)
        began = time.time()
        run.append(max(executor.run(meet)) - began)
        executor.shutdown()
    assert of_ours() == [], of_ours()
    assert files() <= before, files() - before
    middle = [sorted(each)[len(each) // 2] for each in (start, run, own)]
    words = "start() {:.2f} s, run() to the first collective {:.2f} s, two actors of Ray {:.2f} s".format(*middle)
    print(f"measured: {words}")
