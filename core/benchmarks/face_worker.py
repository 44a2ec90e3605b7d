"""A rank of Farandole's numpy API in the benchmark. Its requests:

named      a named asynchronous sum of so many bytes, from its submission to its completion
many       a step of 150 small named sums, submitted in another order on every rank and in every step
messages   not seconds, but messages about what to do next that this rank sent in a step of `many`
init       shutdown and init
"""

from __future__ import annotations

import os
import random
import time

import farandole
import farandole.numpy as fnp
import numpy as np
import worker
from farandole import _core

ARRAYS = 150


class Face:
    """The arrays that are summed."""

    def __init__(self) -> None:
        self._rank = fnp.rank()
        self._array = np.zeros(0, np.float32)
        self._many = [(f"layer.{i}", np.zeros(1 + 3 * i % 256, np.float32)) for i in range(ARRAYS)]
        self._order = random.Random(self._rank)

    def measure(self, what: str, size_bytes: int, repetitions: int, batches: int) -> list[float]:
        if what == "named":
            self._resize(size_bytes)
            return worker.time_batches(self._named, repetitions, batches)
        if what == "many":
            return [self._step() for _ in range(batches)]
        if what == "messages":
            return self._messages(batches)
        assert what == "init", what
        return self._lives(batches)

    def _resize(self, size_bytes: int) -> None:
        if self._array.nbytes != size_bytes:
            self._array = np.ones(size_bytes // 4, np.float32)
            self._named()
            assert (self._array == fnp.size()).all(), "a wrong sum"
            self._array.fill(0)

    def _named(self) -> None:
        fnp.synchronize(fnp.allreduce_async_(self._array, op=fnp.Sum, name=f"named.{self._array.size}"))

    def _step(self) -> float:
        self._order.shuffle(self._many)
        fnp.barrier()
        begin = time.perf_counter()
        handles = [fnp.allreduce_async_(array, op=fnp.Sum, name=name) for name, array in self._many]
        for handle in handles:
            fnp.synchronize(handle)
        return time.perf_counter() - begin

    def _messages(self, steps: int) -> list[float]:
        def sent() -> int:
            count = _core.info()["negotiation_messages"]
            assert isinstance(count, int)
            return count

        for _ in range(3):
            self._step()
        before = sent()
        for _ in range(steps):
            self._step()
        return [(sent() - before) / steps] * steps

    def _lives(self, lives: int) -> list[float]:
        seconds = []
        for _ in range(lives):
            farandole.shutdown()
            begin = time.perf_counter()
            farandole.init()
            farandole.shutdown()
            seconds.append(time.perf_counter() - begin)
            farandole.init()
        return seconds


def main() -> None:
    worker.pin_to_core(int(os.environ["BENCH_RANK"]))  # before there are threads
    fnp.init()
    worker.serve(fnp.rank(), fnp.size(), Face().measure)


if __name__ == "__main__":
    main()
