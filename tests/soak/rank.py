"""A rank of the soak: short steps, each of them committed, until the file `stop` is in the folder of the argument.

It keeps a record there, marks/<its number>, of eight doubles: seconds of the monotonic clock at which its process began
and was in elastic.run for the first time; the last step that is committed, its time, the size of the world, and how
many worlds it has seen.
"""

import os
import struct
import sys
import time
from pathlib import Path

BORN, READY, STEP, STEP_AT, SIZE, WORLDS = range(6)
_FIELDS = 8


def age_s() -> float:
    """The age of this process, whose program begins some time after it."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK")


class Marks:
    """The record of a rank, which others may read at any time: a double is written at once."""

    def __init__(self, path: Path) -> None:
        import mmap

        with path.open("wb+") as file:
            file.write(bytes(8 * _FIELDS))
            file.flush()
            self._values = memoryview(mmap.mmap(file.fileno(), 8 * _FIELDS)).cast("d")

    def get(self, field: int) -> float:
        return float(self._values[field])

    def set(self, field: int, value: float) -> None:
        self._values[field] = value


def read_marks(path: Path) -> tuple[float, ...]:
    """Zeros where there is nothing yet."""
    data = path.read_bytes()
    return struct.unpack(f"{_FIELDS}d", data) if len(data) == 8 * _FIELDS else (0.0,) * _FIELDS


def main(folder: Path, pause_s: float) -> None:
    """Take steps. The states of all ranks are equal after each."""
    born = time.monotonic() - age_s()
    number = int(os.environ.get("FARANDOLE_JOINS") or os.environ["FARANDOLE_RANK"])
    marks = Marks(folder / "marks" / str(number))
    marks.set(BORN, born)

    import farandole.numpy as hvd
    import numpy as np
    from farandole import elastic

    hvd.init()
    stop = folder / "stop"

    @elastic.run
    def train(state: elastic.ObjectState) -> None:
        if not marks.get(READY):
            marks.set(READY, time.monotonic())
        state.worlds += 1
        marks.set(SIZE, hvd.size())
        marks.set(WORLDS, state.worlds)
        while not state.stopped:
            mine = np.full(16_384, 1.0, np.float32)
            mine[-1] = stop.exists()
            total = hvd.allreduce(mine, op=hvd.Sum, name="step")
            if not (total[:-1] == hvd.size()).all():
                raise ValueError(f"a sum of ones over {hvd.size()} ranks is {total[:-1].min()} to {total[:-1].max()}")
            state.stopped = bool(total[-1])
            state.total = state.total + total[0] / hvd.size()
            state.step += 1
            state.commit()
            marks.set(STEP, state.step)
            marks.set(STEP_AT, time.monotonic())
            time.sleep(pause_s)

    state = elastic.ObjectState(step=0, worlds=0, stopped=False, total=0.0)
    train(state)
    if state.total != state.step:
        raise ValueError(f"{state.step} steps have added {state.total}")
    print(f"ended {hvd.rank()} of {hvd.size()} at {state.step}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
