"""Which schedule is fastest between hosts: link_bench in network namespaces, with delay and with a limited rate.

    python3 core/benchmarks/hosts.py --programs FOLDER --output /tmp/hosts.md

FOLDER holds link_bench. Hosts are network namespaces of this machine (network.py), which link_bench enters; this takes
root. A frame is delayed by both of its ports.

The output has a table for each network; docs/benchmarks/hosts.md shows rows of them and is written by hand.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from network import Host, Link, connected
from turns import readable

SIZES = (1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
CLEARLY = 1.1  # times as fast: less is noise


@dataclass(frozen=True)
class Network:
    """A network: the delay and the rate between two hosts."""

    title: str
    hop_us: int = 0  # one way
    rate: str = ""  # of each host's port, as tc writes it; "": as fast as the machine copies


@dataclass(frozen=True)
class Row:
    """The times of one operation of one size in one network, as link_bench measured them."""

    network: Network
    hosts: int
    ranks_each: int
    operation: str
    size_bytes: int
    chosen: tuple[str, str]  # where the order of summation is kept, where it is not
    us: dict[str, float]  # minimum, by algorithm


NETWORKS = (
    Network("no delay, no limit"),
    Network("0.5 ms a hop", hop_us=500),
    Network("200 Mbit/s", rate="200mbit"),
    Network("200 Mbit/s, 0.5 ms a hop", hop_us=500, rate="200mbit"),
    Network("200 Mbit/s, 2 ms a hop", hop_us=2000, rate="200mbit"),
)


# ---- Figures ---------------------------------------------------------------------------------------------------------


def measure(program: Path, network: Network, hosts: list[Host], ranks_each: int, size_bytes: int) -> list[Row]:
    names = [f"{host.network_namespace}@{host.address}" for host in hosts]
    command = [str(program), str(len(names)), "0", str(size_bytes), str(ranks_each), *names]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    rows = []
    for line in answer.splitlines():
        operation, size, in_order, any_order, *times = line.split()
        us = {name: float(time.split("/")[0]) for name, time in zip(times[::2], times[1::2], strict=True)}
        rows.append(Row(network, len(names), ranks_each, operation, int(size), (in_order, any_order), us))
    return rows


def run(options: argparse.Namespace) -> list[Row]:
    networks = [NETWORKS[at] for at in options.networks]
    rows = []
    for count, network in itertools.product(options.hosts, networks):
        with connected(count) as joined:
            joined.become(Link(network.rate, network.hop_us // 2))  # a hop has two ports
            for ranks_each, size_bytes in itertools.product(options.ranks_each, options.sizes):
                rows += measure(options.programs / "link_bench", network, joined.hosts, ranks_each, size_bytes)
        print(f"{count} hosts, {network.title}", flush=True)
    return rows


def gain(row: Row, name: str) -> float:
    """How many times as fast `name` is as what is chosen there, where the order of summation is kept."""
    return row.us[row.chosen[0]] / row.us[name] if name in row.us and row.chosen[0] in row.us else 0.0


def result_lines(rows: list[Row]) -> list[str]:
    """Where an algorithm is clearly faster than the one that is chosen."""
    lines = ["| | algorithm | network | rows | clearly faster in | at best | in the median |", "|---" * 7 + "|"]
    names = {row.operation: dict.fromkeys(itertools.chain.from_iterable(row.us for row in rows)) for row in rows}
    for operation, algorithms in names.items():
        for name, network in itertools.product(algorithms, NETWORKS):
            of_network = [row for row in rows if row.operation == operation and row.network == network]
            gains = sorted(gain(row, name) for row in of_network if name in row.us and row.chosen[0] != name)
            if gains and name != "links":
                clear = sum(each >= CLEARLY for each in gains)
                cells = [operation, name, network.title, str(len(gains)), str(clear)]
                lines.append(f"| {' | '.join(cells)} | {gains[-1]:.2f} | {gains[len(gains) // 2]:.2f} |")
    return lines


def table_lines(rows: list[Row]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row.us))
    heads = ["hosts", "ranks each", "size", "chosen", "in any order", *columns]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        best = min(us for name, us in row.us.items() if name != "links")
        times = [_cell(row.us.get(name), best) for name in columns]
        cells = [str(row.hosts), str(row.ranks_each), readable(row.size_bytes), *row.chosen, *times]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(us: float | None, best: float) -> str:
    mark = "**" if us == best else ""
    return "" if us is None else f"{mark}{us:.0f}{mark}"


def report(rows: list[Row]) -> str:
    lines = ["# Schedules between hosts", "", *result_lines(rows)]
    for operation, network in itertools.product(("allreduce", "allgather"), NETWORKS):
        of_network = [row for row in rows if row.operation == operation and row.network == network]
        if of_network:
            lines += ["", f"## {operation}, {network.title}", "", *table_lines(of_network)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--hosts", type=int, nargs="+", default=[3, 4, 8])
    parser.add_argument("--ranks-each", type=int, nargs="+", default=[1, 2])
    titles = "; ".join(f"{at}: {network.title}" for at, network in enumerate(NETWORKS))
    parser.add_argument("--networks", type=int, nargs="+", default=list(range(len(NETWORKS))), help=titles)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    text = report(run(options))
    if options.output:
        options.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
