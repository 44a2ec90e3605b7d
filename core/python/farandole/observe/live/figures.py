"""Computes the live page's numbers of one rank for the rank's own program, as lines of JSON.

    python -m farandole.observe.live.figures PID     until stdin or the process ends

It runs beside the rank, which cannot import the launcher, and whose training would lose time to it under the GIL. See
StepScalars in the core.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence

from farandole.launch import environment
from farandole.observe import jobs
from farandole.observe.diagnosis import Rank
from farandole.observe.live.metrics import arrivals_of_ranks, numbers
from farandole.observe.records import Recording
from farandole.observe.tails import Tails

_FIRST_S, _EVERY_S = 1.0, 5.0  # the second one is also the window of the figures
_NICE = 10
_SCALARS = {  # name for TensorBoard -> name in the metrics
    "bytes_per_second": "operand_bytes_per_second",
    "in_operations_ratio": "in_operations_ratio",
    "waiting_ratio": "waiting_ratio",
}


def figures(ranks: Sequence[Rank], pid: int, now_ns: int) -> dict[str, float]:
    """Return the figures of the rank with this pid, or none if it is not among `ranks`, those of its job on this host.

    The rank for which all others wait is known only if all ranks are on this host.
    """
    own = [each for each in ranks if each.recording.pid == pid]
    if not own:
        return {}
    arrivals = arrivals_of_ranks(ranks, now_ns)
    of_rank = numbers(own[0], arrivals, now_ns)
    found = {scalar: of_rank[name] or 0.0 for scalar, name in _SCALARS.items()}
    if arrivals.last:
        share, rank = max((arrivals.kept_share(each.number), each.number) for each in ranks)
        found |= {"last_rank": rank, "last_rank_ratio": share}
    return found


def serve(base: Mapping[str, str], pid: int, ends: Sequence[int]) -> None:
    """Print a line every few seconds until one of the descriptors is readable."""
    run, pause_s = "", _FIRST_S

    def is_of_job(recording: Recording) -> bool:
        return recording.run == run

    tails = Tails(base, is_of_job)
    while not select.select(ends, [], [], pause_s)[0]:
        pause_s = _EVERY_S
        current = next((job.run for job in jobs.find(base) if pid in job.pids), "")
        if current != run:  # at the beginning, and between epochs of an elastic job, when there is no file
            run, tails = current, Tails(base, is_of_job)
        now_ns = time.monotonic_ns()  # before the look, which takes time
        print(json.dumps(figures(tails.look(), pid, now_ns)), flush=True)


def main() -> None:
    """Serve the process with the given pid."""
    pid = int(sys.argv[1])
    os.nice(_NICE)
    with contextlib.suppress(ProcessLookupError, BrokenPipeError, KeyboardInterrupt):
        serve(environment.inherited(), pid, [sys.stdin.fileno(), os.pidfd_open(pid)])


if __name__ == "__main__":
    main()
