"""20,000 lines in the order of each rank; 20 jobs in a row that leave nothing."""

import contextlib
import io
import re
import time
from pathlib import Path

from cluster import nodes, of_ours
from farandole_ray import RayExecutor

LINES, JOBS = 10_000, 20


def speak(lines):
    import farandole as hvd

    hvd.init()
    for number in range(lines):
        print("line", number)
    print("and no newline", end="")


def files():
    """But for the folder of flight recorders, which stays; it is empty when no job is left."""
    found = (each for folder in ("/dev/shm", "/tmp") for each in Path(folder).glob("*farandole*"))
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

    took = []
    for _ in range(JOBS):
        began = time.monotonic()
        executor.start()
        assert executor.run(lambda: 7) == [7, 7]
        took.append(time.monotonic() - began)
        executor.shutdown()
    assert of_ours() == [], of_ours()
    assert files() <= before, files() - before
    print(f"from start() to the first result: {sorted(took)[JOBS // 2]:.1f} s, the median of {JOBS}")
