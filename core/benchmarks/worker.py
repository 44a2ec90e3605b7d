"""The counterpart of worker.h for the contestants that are written in Python."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable


def pin_to_core(rank: int) -> None:
    """Left alone, the scheduler may put two ranks that wait for each other on one core."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def time_batches(call: Callable[[], object], repetitions: int, batches: int) -> list[float]:
    """Seconds of one call, for each batch."""
    seconds = []
    for _ in range(batches):
        call()  # brings the ranks together
        begin = time.perf_counter()
        for _ in range(repetitions):
            call()
        seconds.append((time.perf_counter() - begin) / repetitions)
    return seconds


def serve(rank: int, ranks: int, measure: Callable[[str, int, int, int], list[float]]) -> None:
    """Do what the benchmark says until it hangs up. `measure(what, bytes, repetitions, batches)` -> seconds."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["BENCH_SOCKET"])
        connection.sendall(f"hello {rank} {ranks}\n".encode())
        for line in connection.makefile("r"):
            what, *numbers = line.split()
            seconds = measure(what, *map(int, numbers))
            connection.sendall((" ".join(map(repr, seconds)) + "\n").encode())
    sys.stdout.flush()
    os._exit(0)  # some libraries wait for their peers at exit; ours may be gone
