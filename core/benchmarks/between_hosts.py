"""Allreduce between hosts beside gloo and beside raw sockets; ends with 1 where a target is missed.

    python3 noxfile.py -s bench -- core/benchmarks/between_hosts.py
    python3 noxfile.py -s bench -- core/benchmarks/between_hosts.py --output docs/benchmarks
    python3 noxfile.py -s bench -- core/benchmarks/between_hosts.py --links unshaped --hosts 2 --sizes 4 67108864

Hosts are network namespaces of this machine (network.py). docs/benchmarks/README.md says how to read the result.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import itertools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contestants import Contestant, ContestantError, RankSlot, Recipe
from network import Host, Link, Network, connected
from tables import OURS, TargetResult, cell, end, gone_lines, number
from turns import Entry, Round, Times, readable

HERE = Path(__file__).resolve().parent
KIB, MIB = 1024, 1024**2
SIZES = (4, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
LINKS = {"gigabit": Link(rate="1gbit"), "unshaped": Link(), "delayed": Link(port_us=2500)}
TITLES = {"gigabit": "1 Gbit/s", "unshaped": "unshaped", "delayed": "2.5 ms a port"}
RATES = {"gigabit": 1e9}  # bits per second, headers included
HOP_US = {"delayed": 2 * 2500.0}  # from host to host
GLOO, TRIP = "gloo", "half a round trip"
# Connections and threads of raw sockets.
STREAMS = {f"raw, {streams} x {threads}": f"streams-{streams}-{threads}" for streams in (1, 2, 4) for threads in (1, 2)}
ONE_STREAM = "raw, 1 x 1"  # shows the rate of a link, as iperf3 does
TRIP_BYTES = 16 * KIB  # up to here a round trip is measured, from there on streams
RATE_BYTES = 4 * MIB  # from here on the bucket of tbf, which lets some bytes pass at once, is no matter
SLOW_S = 3.0
REPORTED = (4, MIB, 64 * MIB)  # on the page; between-hosts.json has all sizes and worlds
REPORTED_HOSTS = (2, 4)

RATE_SHARE, RAW_SHARE, TRIP_TIMES, HOP_TIMES, AHEAD = 0.95, 0.85, 1.3, 1.2, 1.0  # the targets
AHEAD_AT_THE_RATE, GLOO_SHARE = 0.98, 0.9  # where gloo passes this share of the rate


@dataclass
class World:
    """The times of one number of hosts and ranks over one kind of link."""

    link: str
    hosts: int
    ranks_each: int
    rows: dict[int, dict[str, Times]] = field(default_factory=dict)  # by bytes, then by name
    gone: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{TITLES[self.link]}: {self.hosts} hosts, {self.ranks_each} ranks each"

    def us(self, size_bytes: int, name: str = OURS) -> float | None:
        times = self.rows.get(size_bytes, {}).get(name)
        return times.min_us if times else None

    def rate_us(self, size_bytes: int) -> float | None:
        """The time of the bytes that each host has to send, at the rate that one raw stream has shown."""
        stream = self.us(size_bytes, ONE_STREAM)
        return 2 * (self.hosts - 1) / self.hosts * stream if stream and self.link in RATES else None

    def wire_us(self, size_bytes: int) -> float:
        """The time of these bytes on the wire; 0 where it is not limited."""
        rate = RATES.get(self.link)
        return 2 * (self.hosts - 1) / self.hosts * size_bytes * 8 / rate * 1e6 if rate else 0.0

    def raw_us(self, size_bytes: int) -> float | None:
        """The time of raw sockets: two hosts exchange the same bytes, or one sends them."""
        streams = STREAMS if self.hosts == 2 else ()
        found = [self.us(size_bytes, name) for name in (TRIP, *streams)]
        return min((each for each in found if each is not None), default=None)

    def gloo_over_ours(self, size_bytes: int) -> float | None:
        """By minima; by medians where gloo's minimum is below the time on the wire.

        A contestant that pauses finds the bucket of tbf full, which lets that many bytes pass at once.
        """
        ours, gloo = self.rows[size_bytes].get(OURS), self.rows[size_bytes].get(GLOO)
        if ours is None or gloo is None:
            return None
        by_median = gloo.min_us < self.wire_us(size_bytes)
        return gloo.median_us / ours.median_us if by_median else gloo.min_us / ours.min_us


# ---- Measuring -------------------------------------------------------------------------------------------------------


def slots(hosts: Sequence[Host], ranks_each: int) -> list[RankSlot]:
    """One for each rank, host by host."""
    store = {"FARANDOLE_STORE": f"tcp:{hosts[0].address}:7000", "FARANDOLE_LOCAL_SIZE": str(ranks_each)}
    found = []
    for at, host in enumerate(hosts):
        variables = {**store, "FARANDOLE_CROSS_RANK": str(at), "FARANDOLE_CROSS_SIZE": str(len(hosts))}
        variables |= {"FARANDOLE_ADDRESS": host.address, "GLOO_SOCKET_IFNAME": "eth0"}
        variables |= {"BENCH_ADDRESS": hosts[0].address}  # of the raw sockets
        found += [RankSlot(host.inside, {**variables, "FARANDOLE_LOCAL_RANK": str(rank)}) for rank in range(ranks_each)]
    return found


def recipes(options: argparse.Namespace) -> list[Recipe]:
    ours = [Recipe(OURS, (str(options.programs / "frd_worker"),))]
    if options.beside:
        ours.append(Recipe("beside", (str(options.beside / "frd_worker"),)))
    return [*ours, Recipe(GLOO, (sys.executable, str(HERE / "c10d_worker.py"), "gloo"))]


@contextlib.contextmanager
def started(options: argparse.Namespace, hosts: Sequence[Host], ranks_each: int, home: Path) -> Iterator[list[Entry]]:
    """The contestants, and raw sockets between the first two hosts."""
    with contextlib.ExitStack() as ending:
        entries = []
        for recipe in recipes(options):
            contestant = Contestant(recipe, len(hosts) * ranks_each, home, slots(hosts, ranks_each))
            ending.callback(contestant.close)
            entries.append(Entry(recipe.name, contestant))
        wire = Contestant(Recipe("wire", (str(options.programs / "wire_worker"),)), 2, home, slots(hosts[:2], 1))
        ending.callback(wire.close)
        entries.append(Entry(TRIP, wire, "trip", most_bytes=TRIP_BYTES))
        if len(hosts) == 2:
            entries += [Entry(name, wire, what, least_bytes=TRIP_BYTES + 1) for name, what in STREAMS.items()]
        else:  # each host has several links; one of them shows their rate
            entries.append(Entry(ONE_STREAM, wire, STREAMS[ONE_STREAM], least_bytes=RATE_BYTES))
        yield entries


def measure(options: argparse.Namespace, network: Network, link: str, ranks_each: int, folder: Path) -> World:
    hosts = network.hosts
    world = World(link, len(hosts), ranks_each)
    begin = time.monotonic()
    print(f"\n==> {world.title}", flush=True)
    network.become(LINKS[link])
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        started(options, hosts, ranks_each, Path(home)) as entries,
    ):
        turns = Round(entries, options.seconds, SLOW_S)
        printed = 0
        for size in options.sizes:
            world.rows[size] = turns.measure(size)
            lines = world_lines(world)
            print("\n".join(lines[printed:]), flush=True)
            printed = len(lines)
        world.gone = turns.gone
    for name, why in world.gone.items():
        print(f"{name} sat larger sizes out: {why}")
    print(f"({time.monotonic() - begin:.0f} s)", flush=True)
    return world


def run(options: argparse.Namespace, folder: Path) -> Iterator[World]:
    for link, hosts in itertools.product(options.links, options.hosts):
        with connected(hosts) as network:  # a new one, since a delay ends the kernel's own forwarding
            for ranks_each in options.ranks_each:
                yield measure(options, network, link, ranks_each, folder)


# ---- Reporting -------------------------------------------------------------------------------------------------------


def world_lines(world: World) -> list[str]:
    others = list(dict.fromkeys(n for row in world.rows.values() for n in row if n not in (OURS, TRIP, *STREAMS)))
    rated = world.link in RATES
    heads = ["size", OURS, *itertools.chain(*((name, f"{name} : ours") for name in others)), "raw", "ours : raw"]
    heads += ["of the rate"] if rated else []
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for size, row in world.rows.items():
        ours, raw, ideal = world.us(size), world.raw_us(size), world.rate_us(size)
        cells = [readable(size), cell(row.get(OURS))]
        for name in others:
            other = world.us(size, name)
            cells += [cell(row.get(name)), f"{other / ours:.2f}" if other and ours else ""]
        cells += [number(raw) if raw else "", f"{ours / raw:.2f}" if ours and raw else ""]
        if rated:
            cells.append(f"{ideal / ours:.1%}" if ideal and ours and size >= RATE_BYTES else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def link_lines(worlds: Sequence[World]) -> list[str]:
    """The page's table: all worlds over one kind of link, at some sizes."""
    sizes = [size for size in REPORTED if all(size in world.rows for world in worlds)] or list(worlds[0].rows)
    heads = ["hosts", "ranks each", *itertools.chain(*((readable(size), "gloo : ours") for size in sizes))]
    lines = [f"| {' | '.join(heads)} |", "|---:" * len(heads) + "|"]
    for world in worlds:
        cells = [str(world.hosts), str(world.ranks_each)]
        for size in sizes:
            ratio = world.gloo_over_ours(size)
            cells += [cell(world.rows[size].get(OURS)), f"{ratio:.2f}" if ratio else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def target_results(world: World) -> list[TargetResult]:
    found = []
    for size in world.rows:
        ours, what = world.us(size), f"{world.title}, {readable(size)}"
        if size == 4 and ours:
            found += small_results(world, what, ours)
        if size == 64 * MIB and ours:
            found += large_results(world, what, ours)
        ahead, gloo, ideal = world.gloo_over_ours(size), world.us(size, GLOO), world.rate_us(size)
        if gloo:
            at_the_rate = size >= RATE_BYTES and ideal is not None and ideal / gloo >= GLOO_SHARE
            limit = AHEAD_AT_THE_RATE if at_the_rate else AHEAD
            found.append(TargetResult(f"{what}: gloo : ours", ahead, limit, "", at_least=True))
    return found


def small_results(world: World, what: str, ours_us: float) -> list[TargetResult]:
    """Those of 4 B, in worlds whose hosts could have a core for each rank here."""
    trip, hop = world.us(4, TRIP), HOP_US.get(world.link)
    if hop:
        return [TargetResult(f"{what}: times a hop", ours_us / hop, HOP_TIMES, "")]
    if trip and world.link == "unshaped" and world.hosts == 2 and world.ranks_each <= 2:
        return [TargetResult(f"{what}: times half a round trip", ours_us / trip, TRIP_TIMES, "")]
    return []


def large_results(world: World, what: str, ours_us: float) -> list[TargetResult]:
    """Those of 64 MiB."""
    ideal, raw = world.rate_us(64 * MIB), world.raw_us(64 * MIB)
    if ideal:
        return [TargetResult(f"{what}: of the rate", ideal / ours_us, RATE_SHARE, "", at_least=True)]
    if raw and world.link == "unshaped":
        return [TargetResult(f"{what}: of raw streams", raw / ours_us, RAW_SHARE, "", at_least=True)]
    return []


def machine() -> dict[str, Any]:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "date": datetime.date.today().isoformat(),
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "kernel": platform.release(),
        "congestion control": Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "torch": torch.__version__,
    }


def write(folder: Path, facts: dict[str, Any], worlds: Sequence[World], results: Sequence[TargetResult]) -> None:
    """between-hosts.md for people and between-hosts.json for programs."""
    met = sum(result.met for result in results)
    lines = [
        "# Allreduce between hosts",
        "",
        "In-place float32 sums between network namespaces of one machine. Cells are microseconds, minimum / median.",
        "gloo : ours compares the minimums, or the medians where gloo's minimum is below the time on the wire.",
        "[How to read it](README.md#between-hosts). between-hosts.json also has three hosts, gloo's times, those of",
        "raw sockets, and all targets. Written by `python3 noxfile.py -s bench -- core/benchmarks/between_hosts.py`.",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()) + ".",
        "",
        "## Targets",
        "",
        f"{met} of {len(results)} are met. Those that are missed:",
        "",
        *(f"- {result.sentence()}" for result in results if not result.met),
    ]
    for link, group in itertools.groupby(worlds, key=lambda world: world.link):
        of_link = list(group)
        reported = [world for world in of_link if world.hosts in REPORTED_HOSTS] or of_link
        lines += ["", f"## {TITLES[link]}", "", *link_lines(reported)]
        for world in of_link:
            lines += gone_lines(world.rows, world.gone, f"{world.title}: ")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "between-hosts.md").write_text("\n".join(lines) + "\n")
    found = {
        "machine": facts,
        "worlds": [dataclasses.asdict(world) for world in worlds],
        "targets": [{**dataclasses.asdict(result), "met": result.met} for result in results],
    }
    (folder / "between-hosts.json").write_text(json.dumps(found, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="folder of the compiled workers")
    parser.add_argument("--beside", type=Path, help="folder of another build's workers, which take turns with these")
    parser.add_argument("--links", nargs="+", choices=tuple(LINKS), default=tuple(LINKS))
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--ranks-each", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=0.4, help="about how long each contestant has for each size")
    parser.add_argument("--output", type=Path, help="folder for between-hosts.md and between-hosts.json")
    options = parser.parse_args()
    facts, worlds, results = machine(), list[World](), list[TargetResult]()
    # Not in /dev/shm, of which each host has its own.
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        for world in run(options, Path(folder)):
            worlds.append(world)
            results += target_results(world)
            if options.output:  # so that an interrupted run keeps its figures
                write(options.output, facts, worlds, results)
    return end(results, only_missed=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ContestantError as error:
        sys.exit(f"benchmark: {error}")
