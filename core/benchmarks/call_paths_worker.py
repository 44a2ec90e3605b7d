"""A rank of call_paths.py. Rank 0 records some blocking sums and writes their trees of calls to a file.

    call_paths_worker.py BYTES CALLS OUTPUT

Expects call_recorder.c to be preloaded; CALL_RECORDER is its path.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from types import CodeType, FrameType

import farandole_torch as hvd
import torch

FIRST_CALLS = 3  # after them all ranks know the name
HEAD_START_S = 0.002  # of the other rank
PACKAGES = str(Path(hvd.__file__).parents[1]) + os.sep


class Node(ctypes.Structure):
    """As in call_recorder.c."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("parent", ctypes.c_int),
        ("first_child", ctypes.c_int),
        ("next_sibling", ctypes.c_int),
    ]


class Recorder:
    """Records the calls of this thread. Functions are addresses; a Python function of ours has a small number."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["CALL_RECORDER"])
        self._library.call_recorder_stop.restype = ctypes.POINTER(Node)
        self._enter, self._exit = (self._library[f"__cyg_profile_func_{event}"] for event in ("enter", "exit"))
        for function in (self._enter, self._exit):
            function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._numbers: dict[CodeType, int] = {}

    def start(self) -> None:
        self._library.call_recorder_start()
        sys.setprofile(self._on_event)

    def stop(self) -> list[tuple[int, int]]:
        """Return the nodes of the tree: the index of the parent, and the function."""
        sys.setprofile(None)
        count = ctypes.c_int()
        nodes = self._library.call_recorder_stop(ctypes.byref(count))
        return [(nodes[at].parent, nodes[at].function or 0) for at in range(count.value)]

    def python_functions(self) -> dict[int, tuple[str, str]]:
        """Return the name and the file, below the folder of packages, of each number."""
        return {
            number: (getattr(code, "co_qualname", code.co_name), code.co_filename.removeprefix(PACKAGES))
            for code, number in self._numbers.items()
        }

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGES):
            return
        number = self._numbers.setdefault(code, len(self._numbers) + 1)
        (self._enter if event == "call" else self._exit)(number, None)


def core_library() -> tuple[str, int]:
    """Return the path of the core and the address at which it is loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        address, *_, path = line.split()
        if path.startswith(PACKAGES) and Path(path).name.startswith("_core"):
            return path, int(address.partition("-")[0], 16)
    raise RuntimeError("the core is not loaded")


def record_sums(tensor: torch.Tensor, calls: int) -> tuple[list[list[tuple[int, int]]], Recorder]:
    recorder = Recorder()
    trees = []
    for number in range(FIRST_CALLS + calls):
        hvd.barrier()
        if hvd.rank() > 0 or number < FIRST_CALLS:
            hvd.allreduce(tensor, op=hvd.Sum, name="tensor")
            continue
        time.sleep(HEAD_START_S)
        recorder.start()
        hvd.allreduce(tensor, op=hvd.Sum, name="tensor")
        trees.append(recorder.stop())
    return trees, recorder


def main() -> None:
    size_bytes, calls, output = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    hvd.init()
    trees, recorder = record_sums(torch.ones(size_bytes // 4), calls)
    if hvd.rank() == 0:
        record = {"trees": trees, "python": recorder.python_functions(), "core": core_library()}
        output.write_text(json.dumps(record))
    hvd.shutdown()


if __name__ == "__main__":
    main()
