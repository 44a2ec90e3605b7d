"""Limits of this machine, measured once and kept in a file: the largest sum in cells, the size of a round, and whether
each of two ranks writes over what it has read.

    file, of this processor and as many ranks --> core.init --> limits that are alike on all ranks (peer_info.h)
    no file: the ranks measure in the new world, rank 0 decides for all and writes the file

A measurement takes 50 to 80 ms with two ranks, 140 to 270 with four on two cores. A file that is another user's, of
another machine or version, or damaged counts as none. A new file takes the place of the old one at once, so no job
reads half of one.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from farandole._api.adapter import DType
from farandole._api.ops import Kind, ReduceOp
from farandole._runtime import clock
from farandole._runtime.native import core
from farandole._start import environment

UNTUNED = "0"
OVERWRITING = (("cells overwritten", 1), ("cells left alone", 0))
ROUNDS_BYTES = (256 << 10, 128 << 10, 64 << 10, 512 << 10)
ROUND_SIZES_BYTES = (1 << 20, 4 << 20)
CELL_SIZE_BYTES = 32 << 10  # cells up to this size are better nearly everywhere
BETTER = 0.97  # another way must save 3 %: less is noise
STAGED_BETTER = 0.9  # cells announce that a rank has arrived, which the measurement does not see


@dataclass(frozen=True)
class Way:
    """One way for a sum to travel, and the time that a call took on this rank, in each turn."""

    title: str
    size_bytes: int
    cell_bytes: int
    round_bytes: int
    overwrites: int = 1
    times_ns: list[int] = field(default_factory=list)

    @property
    def time_ns(self) -> int:
        """That of the best quarter of turns: other programs only make calls slower."""
        return sorted(self.times_ns)[len(self.times_ns) // 4]


@dataclass(frozen=True)
class Measured:
    """The decision of rank 0, as the core reads it, and the ways that this rank has compared."""

    limits: str
    cell_bytes: int
    unawaited_bytes: int  # the largest sum in cells for which not all callers wait
    round_bytes: int
    overwrites: int
    ways: list[Way]


# ---- the file


def of_this_host(ranks: int) -> str:
    """The limits for so many ranks on this host, as text; "" where they are to be measured."""
    is_carried = not set(environment.backends()) <= {"native", "nccl"}  # a library may carry what would be measured
    if environment.tuning() or ranks < 2 or is_carried:
        return UNTUNED
    with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError, AttributeError):
        path = file()
        if path.stat().st_uid == os.geteuid():
            found = json.loads(path.read_text()).get(str(ranks))
            return found if core.are_limits(found) and found.startswith(f"{ranks}:") else ""
    return ""


def keep(ranks: int, limits: str) -> Path | None:
    """Write them to this machine's file, beside those for other numbers of ranks. Returns where; None: nowhere."""
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        found = json.loads(file().read_text())
        known = {str(number): str(text) for number, text in found.items()} if isinstance(found, dict) else {}
    try:
        path = file()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(path, json.dumps(known | {str(ranks): limits}, indent=1))
    except (OSError, RuntimeError):
        return None
    return path


def _replace(path: Path, text: str) -> None:
    """Write the file at once, and leave nothing beside it where that fails."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.stem, delete=False) as fresh:
        try:
            fresh.write(text)
            fresh.flush()
            os.replace(fresh.name, path)
        except OSError:
            os.unlink(fresh.name)
            raise


def file() -> Path:
    """Where this user keeps the limits of this machine: one file for each kind of machine, version and largest cells.

    Raises RuntimeError where the user has no home.
    """
    from farandole import __version__

    build = __version__, core.built_in_limits(2)
    kind = hashlib.sha256(repr((*build, *_processor())).encode()).hexdigest()[:16]
    return environment.cache_home() / "farandole" / f"tuning-{kind}.json"


def _processor() -> Iterator[str]:
    """The marks of processors whose limits differ: their model, their cores, and the sizes of their caches.

    A job that may use fewer cores than the machine has keeps limits of its own.
    """
    yield platform.machine()
    yield f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            if line.startswith(("model name", "cpu family", "model\t", "stepping", "CPU implementer", "CPU part")):
                yield line
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError):
            yield f"{cache.name} {(cache / 'size').read_text()} {(cache / 'shared_cpu_list').read_text()}"


# ---- the measurement


def complete(rank: int, ranks: int) -> None:
    """Measure what the new world lacks, and keep it. Collective; does nothing where nothing is lacking."""
    if core.tuning():
        return
    measured = measure(ranks)
    if rank == 0:
        keep(ranks, measured.limits)


def measure(ranks: int) -> Measured:
    """Compare the ways on all ranks of this host, and use the best ones. Collective, in a world on one host."""
    most, unawaited, usual, usually_overwrites = core.built_in_limits(ranks)
    shares_cores = core.info()["shares_cores"]
    cells = [
        [Way("through cells", size, most, usual), Way("staged", size, 1, usual)]  # for the second no sum is small
        for size in _cell_sizes(most)
    ]
    rounds = [
        [Way(f"in rounds of {each >> 10} KiB", size, 1, each) for each in ROUNDS_BYTES] for size in ROUND_SIZES_BYTES
    ]
    compared = OVERWRITING if ranks == 2 and not shares_cores else ()
    written = [Way(title, core.largest_whole_fold_bytes, most, usual, each) for title, each in compared]
    for ways in cells:
        _time(ranks, ways, turns=16, calls=8 if ways[0].size_bytes <= CELL_SIZE_BYTES else 3)
    for ways in rounds:
        _time(ranks, ways, turns=6, calls=1)
    if written:
        _time(ranks, written, turns=16, calls=64)
    # Where ranks share cores, a few calls take as long as the kernel lets other ranks run, whatever their way.
    cell_bytes = most if shares_cores else _cell_bytes(cells)
    round_bytes = _round_bytes(rounds, usual)
    cost_ns = next(way.time_ns for way in rounds[0] if way.round_bytes == round_bytes)
    _, cell_bytes, round_bytes, overwrites, _ = of_rank_0 = clock.allgather(
        [ranks, cell_bytes, round_bytes, _overwrites(written, usually_overwrites), cost_ns], "farandole.tuning"
    )[:5]
    limits = ":".join(map(str, of_rank_0))
    core.tune(limits)
    every = [way for ways in [*cells, *rounds, written] for way in ways]
    return Measured(limits, cell_bytes, min(cell_bytes, unawaited), round_bytes, overwrites, every)


def _cell_sizes(most: int) -> list[int]:
    """The sizes at which cells are compared: the largest one, and its halves down to the usual ones."""
    sizes = [most // 2, most]
    while sizes[0] > CELL_SIZE_BYTES:
        sizes.insert(0, sizes[0] // 2)
    return sizes


def _cell_bytes(cells: list[list[Way]]) -> int:
    """The largest size up to which cells are not worse."""
    limit = cells[0][0].size_bytes // 2
    for in_cells, staged in cells:
        if staged.time_ns < STAGED_BETTER * in_cells.time_ns:
            break
        limit = in_cells.size_bytes
    return limit


def _round_bytes(rounds: list[list[Way]], usual: int) -> int:
    """The usual one, unless another one is better at both sizes taken together."""

    def cost(round_bytes: int) -> float:
        ratios = 1.0  # of the times to the usual ones
        for ways in rounds:
            times = {way.round_bytes: way.time_ns for way in ways}
            ratios *= times[round_bytes] / times[usual]
        return math.pow(ratios, 1 / len(rounds))

    best = min(ROUNDS_BYTES, key=cost)
    return best if cost(best) < BETTER else usual


def _overwrites(ways: list[Way], usually: bool) -> int:
    """1, unless it is better to write nothing over what was read; where that was not measured, what is usual."""
    return int(ways[1].time_ns >= BETTER * ways[0].time_ns if ways else usually)


def _time(ranks: int, ways: list[Way], turns: int, calls: int) -> None:
    """Let the ways of one size take turns of so many calls, after one that brings the ranks together.

    A rank may begin the next call while others still read what it has put for the last one, so only several calls
    together tell what one takes.
    """
    memory = (ctypes.c_char * (ways[0].size_bytes + 64))()
    address = (ctypes.addressof(memory) + 63) // 64 * 64
    call = address, address, DType.FLOAT32, (ways[0].size_bytes // 4,)
    sums = []
    for way in ways:
        name = f"farandole.tuning.{way.size_bytes}.{way.cell_bytes}.{way.round_bytes}.{way.overwrites}"
        sums.append(core.prepare(Kind.ALLREDUCE, memory, memory, call, (name, ReduceOp.SUM, 0, 1.0, 1.0, 0)))
    for turn in range(turns + 1):
        for way, add_up in zip(ways, sums, strict=True):
            core.tune(f"{ranks}:{way.cell_bytes}:{way.round_bytes}:{way.overwrites}:1")
            add_up()
            began = time.perf_counter_ns()
            for _ in range(calls):
                add_up()
            if turn:  # the first one finds out where the memory is
                way.times_ns.append((time.perf_counter_ns() - began) // calls)
