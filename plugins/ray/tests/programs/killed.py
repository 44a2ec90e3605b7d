"""Ctrl-C ends the ranks, and so does the death of the driver."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from unittest import mock

import ray
from cluster import nodes, of_ours
from farandole_ray import RayExecutor


def sleep():
    import time

    time.sleep(100)


def await_nothing(seconds):
    until = time.monotonic() + seconds
    while of_ours():
        assert time.monotonic() < until, of_ours()
        time.sleep(0.1)


def drive(address):
    """Another driver, which ends as it is killed."""
    ray.init(address=address, log_to_driver=False)
    executor = RayExecutor(num_workers=2)
    executor.start()
    Path("started").touch()
    executor.run(sleep)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its jobs in the background ignore it
    with nodes(2) as cluster:
        executor = RayExecutor(num_workers=2)
        executor.start()
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            executor.run(sleep)
        except KeyboardInterrupt:
            print("interrupted")
        await_nothing(10)
        executor.shutdown()

        executor.start()
        try:
            with mock.patch("ray.put", side_effect=KeyboardInterrupt):
                executor.run(sleep)
        except KeyboardInterrupt:
            print("interrupted before the ranks had the call")
        await_nothing(10)
        executor.shutdown()

        process = multiprocessing.get_context("spawn").Process(target=drive, args=(cluster.address,))
        process.start()
        until = time.monotonic() + 60
        while not Path("started").exists():
            assert time.monotonic() < until
            time.sleep(0.1)
        assert of_ours()
        process.kill()
        process.join()
        await_nothing(20)
