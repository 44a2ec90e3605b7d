"""Draws docs/benchmarks/chart.svg from the figures beside it: allreduce.json and torch.json.

    python3 core/benchmarks/chart.py

The picture has a background of its own, so it can be read on any page, and follows the reader's light or dark scheme.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
WIDTH, HEIGHT = 920, 345
LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 70, 66, 330, 236
BARS_LEFT, BARS_WIDTH = 672, 150
SMALLEST, LARGEST = 4, 64 << 20  # bytes
LEAST_US, MOST_US = 0.1, 1e5
SERIES = {  # of allreduce.json: name on the chart, class
    "farandole": ("Farandole", "ours"),
    "Open MPI": ("Open MPI", "open"),
    "MPICH": ("MPICH", "mpich"),
    "Intel MPI": ("Intel MPI", "intel"),
    "gloo": ("Gloo", "gloo"),
}
BARS = {  # of torch.json: name on the chart, class
    "DistributedOptimizer": ("DistributedOptimizer", "ours"),
    "DDP, farandole": ("DDP over Farandole", "ours"),
    "DDP, gloo": ("DDP over Gloo", "gloo"),
}
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .small { font-size: 12px; fill: #57606a; }
  .page { fill: #ffffff; stroke: #d0d7de; }
  line { stroke: #d8dee4; }
  polyline { fill: none; stroke: currentColor; stroke-width: 2; }
  polyline.ours { stroke-width: 4; }
  .bar, .name { fill: currentColor; }
  .ours { color: #0a7d72; }
  .open { color: #0969da; }
  .mpich { color: #8250df; }
  .intel { color: #bf3989; }
  .gloo { color: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .page { fill: #0d1117; stroke: #3d444d; }
    line { stroke: #30363d; }
    .bar, .name { fill: currentColor; }
    .ours { color: #2dd4bf; }
    .open { color: #58a6ff; }
    .mpich { color: #bc8cff; }
    .intel { color: #f778ba; }
    .gloo { color: #f0883e; }
  }
"""


def draw(folder: Path = FIGURES) -> str:
    """The picture, made from the figures in a folder."""
    allreduce = json.loads((folder / "allreduce.json").read_text())
    step = json.loads((folder / "torch.json").read_text())
    pair = next(table for table in allreduce["tables"] if table["key"] == "pair")
    parts = [*lines(pair, allreduce["machine"]), *bars(step)]
    alt = "Allreduce latency of Farandole, Open MPI, MPICH, Intel MPI and Gloo, and what each adds to a training step"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def lines(pair: dict[str, Any], machine: dict[str, Any]) -> list[str]:
    """Time by size, both logarithmic, a line for each library."""
    parts = [text(LEFT - 44, 28, "Allreduce: time by size (lower is better)", "title")]
    where = f"2 ranks on one machine, {machine['cores']} cores of {machine['processor']}, float32"
    parts.append(text(LEFT - 44, 47, where, "small"))
    for power in range(round(math.log10(LEAST_US)), round(math.log10(MOST_US)) + 1):
        y = y_of(10.0**power)
        parts += [segment(LEFT, y, LEFT + PLOT_WIDTH, y), text(LEFT - 6, y + 4, duration(power), "small", "end")]
    for label, size in {"4 B": 4, "1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "64 MiB": 64 << 20}.items():
        parts.append(segment(x_of(size), TOP, x_of(size), TOP + PLOT_HEIGHT))
        parts.append(text(x_of(size), TOP + PLOT_HEIGHT + 18, label, "small", "middle"))
    ends: dict[str, float] = {}
    for column, (_, kind) in SERIES.items():
        rows = [(int(size), row[column]["min_us"]) for size, row in pair["rows"].items() if column in row]
        points = [(x_of(size), y_of(us)) for size, us in rows if SMALLEST <= size <= LARGEST]
        parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        ends[column] = points[-1][1]
    for column, y in spread(ends, 15).items():
        name, kind = SERIES[column]
        parts.append(text(LEFT + PLOT_WIDTH + 6, y + 4, name, f"small name {kind}"))
    return parts


def spread(places: dict[str, float], least: float) -> dict[str, float]:
    """Labels beside their places, from top to bottom, so that none covers another."""
    spaced: dict[str, float] = {}
    for name, place in sorted(places.items(), key=lambda each: each[1]):
        below = max(spaced.values(), default=place - 2 * least) + least
        spaced[name] = max(place - least / 2, below)
    return spaced


def bars(step: dict[str, Any]) -> list[str]:
    """What each way to exchange gradients adds to a training step."""
    compute_ms = step["ways"]["compute only"]["min_ms"]
    parts = [text(BARS_LEFT - 150, 28, "PyTorch: time added to a training step", "title")]
    step_of = f"{step['model']}, {compute_ms:.0f} ms without exchange"
    parts.append(text(BARS_LEFT - 150, 47, step_of, "small"))
    added = {name: step["ways"][name]["min_ms"] - compute_ms for name in BARS}
    for number, (key, ms) in enumerate(added.items()):
        name, kind = BARS[key]
        y, width = TOP + 36 + 62 * number, BARS_WIDTH * ms / max(added.values())
        parts.append(text(BARS_LEFT - 10, y + 18, name, "", "end"))
        parts.append(f'<rect class="bar {kind}" x="{BARS_LEFT}" y="{y}" width="{width:.1f}" height="26" rx="3"/>')
        parts.append(text(BARS_LEFT + width + 8, y + 18, f"+{ms:.1f} ms"))
    return parts


def x_of(size: int) -> float:
    return LEFT + PLOT_WIDTH * math.log(size / SMALLEST) / math.log(LARGEST / SMALLEST)


def y_of(us: float) -> float:
    return TOP + PLOT_HEIGHT * (1 - math.log(us / LEAST_US) / math.log(MOST_US / LEAST_US))


def duration(power: int) -> str:
    """Ten to the power, in microseconds, as people write it."""
    return f"{10.0**power:g} us" if power < 3 else f"{10 ** (power - 3)} ms"


def segment(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


if __name__ == "__main__":
    (FIGURES / "chart.svg").write_text(draw())
