"""The results of the benchmark: one table per world, figures beside them, and the way both are written."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turns import Times, readable

LIMIT = "limit"  # the column of what the machine allows at least
OURS = "farandole"
KERNEL = "bare kernel"
FACE = "through PyTorch"
NEAREST = "nearest peer : ours"
REPORTED = (4, *(1024 << power for power in range(2, 20, 4)))  # bytes: 4, 4 KiB, 64 KiB to 256 MiB


@dataclass
class Table:
    """The contestants of one world, by size."""

    key: str
    title: str
    ranks: int
    limits: str  # what the column of limits is, in a sentence
    columns: list[str]  # names of contestants, ours first
    rows: dict[int, dict[str, Times]] = field(default_factory=dict)  # by bytes, then by name
    gone: dict[str, str] = field(default_factory=dict)

    def us(self, size_bytes: int, name: str = OURS, median: bool = False) -> float | None:
        """Microseconds: the minimum, unless the median is asked for."""
        times = self.rows.get(size_bytes, {}).get(name)
        return None if times is None else times.median_us if median else times.min_us

    def ratio(self, size_bytes: int, name: str) -> float | None:
        """How many times as long as ours `name` takes."""
        ours, other = self.us(size_bytes), self.us(size_bytes, name)
        return other / ours if ours and other else None

    @property
    def peers(self) -> list[str]:
        return [name for name in self.columns[1:] if name not in (KERNEL, FACE)]

    def nearest(self, size_bytes: int, median: bool = False) -> tuple[float, str] | None:
        """How many times as long as ours the fastest peer takes, and its name."""
        ours = self.us(size_bytes, median=median)
        times = [(us, name) for name in self.peers if (us := self.us(size_bytes, name, median))]
        return (min(times)[0] / ours, min(times)[1]) if ours and times else None

    def share_best(self, sizes: Sequence[int]) -> None:
        """These sizes have one limit per byte: the best that was measured at any of them."""
        sizes = [size for size in sizes if LIMIT in self.rows[size]]
        best = min((self.rows[size][LIMIT].min_us / size for size in sizes), default=0.0)
        for size in sizes:
            self.rows[size][LIMIT] = dataclasses.replace(self.rows[size][LIMIT], min_us=best * size)


@dataclass(frozen=True)
class TargetResult:
    """A target and what was measured for it; `measured` None: it could not be measured, which is a miss."""

    what: str
    measured: float | None
    limit: float
    unit: str
    at_least: bool = False
    remark: str = ""

    @property
    def met(self) -> bool:
        if self.measured is None:
            return False
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def sentence(self) -> str:
        sign = ">=" if self.at_least else "<="
        found = "not measured" if self.measured is None else f"{self.measured:.3g}{self.unit}"
        more = f" ({self.remark})" if self.remark else ""
        return f"{self.what}: {found}, wanted {sign} {self.limit:g}{self.unit}{more}"


def number(microseconds: float) -> str:
    if microseconds < 10:
        return f"{microseconds:.2f}"
    return f"{microseconds:.1f}" if microseconds < 1000 else f"{microseconds:.0f}"


def cell(times: Times | None) -> str:
    return f"{number(times.min_us)} / {number(times.median_us)}" if times else ""


def table_lines(table: Table) -> list[str]:
    """Every size, with the ratio to each contestant: what a run prints."""
    peers = table.columns[1:]
    heads = ["size", "limit", OURS, "of the limit", *(f"{name} | {name} : ours" for name in peers)]
    lines = [f"| {' | '.join(heads)} |", "|---" * (4 + 2 * len(peers)) + "|"]
    for size_bytes, row in table.rows.items():
        limit, ours = table.us(size_bytes, LIMIT), table.us(size_bytes)
        cells = [readable(size_bytes), number(limit) if limit else "", cell(row.get(OURS))]
        cells.append(f"{ours / limit:.2f}" if ours and limit else "")
        for name in peers:
            ratio = table.ratio(size_bytes, name)
            cells += [cell(row.get(name)), f"{ratio:.1f}" if ratio else ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def report_lines(table: Table) -> list[str]:
    """The page's table: peers at some sizes of a whole run. allreduce.json has everything."""
    heads = ["size", "limit", OURS, *table.peers, NEAREST]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for size_bytes in [size for size in REPORTED if size in table.rows] or table.rows:
        times = [table.us(size_bytes, name) for name in (LIMIT, *table.peers)]
        limit, *peers = [number(us) if us else "" for us in times]
        nearest = [table.nearest(size_bytes, median) for median in (False, True)]
        ratios = " / ".join(f"{found[0]:.2f}" for found in nearest if found)
        cells = [readable(size_bytes), limit, cell(table.rows[size_bytes].get(OURS)), *peers, ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def gone_lines(rows: Mapping[int, Mapping[str, Times]], gone: Mapping[str, str], where: str = "") -> list[str]:
    """Which contestants lack times of larger sizes, and why."""
    missing = [name for name in gone if any(name not in row for row in rows.values())]
    return [f"\n{where}{name} was not measured at larger sizes: {gone[name]}." for name in missing]


def figure_lines(figures: dict[str, tuple[float, str]]) -> list[str]:
    return [f"- {what}: {value:.3g} {unit}".rstrip() for what, (value, unit) in figures.items()]


def end(results: Sequence[TargetResult], only_missed: bool = False) -> int:
    """Say which targets are met, and return the benchmark's exit code."""
    missed = [result for result in results if not result.met]
    print(f"\n==> Targets: {len(results) - len(missed)} of {len(results)} are met")
    for result in missed if only_missed else results:
        print(f"{'met   ' if result.met else 'MISSED'}  {result.sentence()}")
    return 1 if missed else 0


@dataclass
class Report:
    """Everything that one run found."""

    machine: dict[str, Any]
    tables: list[Table]
    figures: dict[str, tuple[float, str]]
    results: list[TargetResult]

    def write(self, folder: Path) -> None:
        """allreduce.md for people and allreduce.json for programs."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "allreduce.md").write_text("\n".join(self._markdown()) + "\n")
        (folder / "allreduce.json").write_text(json.dumps(self._json(), indent=1) + "\n")

    def _markdown(self) -> list[str]:
        missed = [result for result in self.results if not result.met]
        lines = [
            "# Allreduce beside its peers and beside what the machine allows",
            "",
            "In-place float32 sums, microseconds; smaller is better. Ours: minimum / median; peers: minimum. The last",
            "column is the time of the fastest of Open MPI, MPICH, Intel MPI and gloo over ours, minimums / medians.",
            "[How to read it](README.md). allreduce.json has all sizes, medians, ratios and targets. Written by",
            "`python3 noxfile.py -s bench -- core/benchmarks/run.py --output docs/benchmarks`.",
            "",
            ", ".join(f"{name} {value}" for name, value in self.machine.items()) + ".",
            "",
            "## Targets",
            "",
            f"{len(self.results) - len(missed)} of {len(self.results)} are met. Those that are missed:",
            "",
            *(f"- {dataclasses.replace(result, remark='').sentence()}" for result in missed),
        ]
        for table in self.tables:
            lines += ["", f"## {table.title}", "", table.limits, "", *report_lines(table)]
            lines += gone_lines(table.rows, table.gone)
        absolute = {what: figure for what, figure in self.figures.items() if figure[1] != "times"}
        return [*lines, "", "## Single figures", "", *figure_lines(absolute)]

    def _json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "tables": [dataclasses.asdict(table) for table in self.tables],
            "figures": {what: {"value": value, "unit": unit} for what, (value, unit) in self.figures.items()},
            "targets": [{**dataclasses.asdict(result), "met": result.met} for result in self.results],
        }
