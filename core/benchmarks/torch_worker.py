"""A rank of Farandole's PyTorch plugin in the benchmark: in-place sums of float32."""

from __future__ import annotations

import os

import farandole_torch as hvd
import torch
import worker


class Sums:
    """Sums of one tensor, which a new size replaces."""

    def __init__(self) -> None:
        self._tensor = torch.zeros(0)

    def measure(self, _what: str, size_bytes: int, repetitions: int, batches: int) -> list[float]:
        if self._tensor.nbytes != size_bytes:
            self._tensor = torch.ones(size_bytes // 4)
            hvd.allreduce_(self._tensor, op=hvd.Sum)
            assert bool((self._tensor == hvd.size()).all()), "a wrong sum"
            self._tensor.zero_()
        return worker.time_batches(lambda: hvd.allreduce_(self._tensor, op=hvd.Sum), repetitions, batches)


def main() -> None:
    torch.set_num_threads(1)
    worker.pin_to_core(int(os.environ["BENCH_RANK"]))  # before there are threads
    hvd.init()
    worker.serve(hvd.rank(), hvd.size(), Sums().measure)


if __name__ == "__main__":
    main()
