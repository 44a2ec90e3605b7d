"""One rank of `farandole bench`; rank 0 prints and writes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import farandole.numpy as fnp
from farandole.benchmark.measure import OPERATIONS, Row, measure

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m farandole.benchmark", description=__doc__)
    parser.add_argument("--operation", choices=sorted(OPERATIONS), default="allreduce")
    parser.add_argument("--sizes", type=int, nargs="+", default=[], help="bytes, multiples of 4")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long each size takes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    fnp.init()
    says = fnp.rank() == 0
    if says:
        print(head(options.operation, fnp.size()), flush=True)
    rows: list[Row] = []
    for size_bytes in options.sizes:
        rows.append(measure(options.operation, size_bytes, options.seconds))
        if says:
            print(line(rows[-1]), flush=True)
    if says:
        print(explanation(options.operation, fnp.size()))
        if options.json:
            report = {"operation": options.operation, "ranks": fnp.size(), "rows": [row.as_json() for row in rows]}
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    fnp.shutdown()


def size_text(size_bytes: int) -> str:
    """65536 -> "64 KiB"; sizes that no unit divides stay bytes."""
    for unit, factor in _UNITS:
        if size_bytes % factor == 0 and size_bytes:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def time_text(seconds: float) -> str:
    """Microseconds, or milliseconds from 10 of them on."""
    if seconds >= 1e-2:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.1f} us"


def head(operation: str, ranks: int) -> str:
    """The heading above the lines."""
    columns = f"{'size':>12} {'minimum':>12} {'median':>12} {'algorithm':>12} {'bus':>12}"
    return f"{operation} of float32 arrays on {ranks} {'rank' if ranks == 1 else 'ranks'}\n\n{columns}"


def line(row: Row) -> str:
    """One size."""
    times = f"{time_text(row.min_s):>12} {time_text(row.median_s):>12}"
    rates = f"{row.algorithm_gb_s:>7.2f} GB/s {row.bus_gb_s:>7.2f} GB/s"
    return f"{size_text(row.size_bytes):>12} {times} {rates}"


def explanation(operation: str, ranks: int) -> str:
    """The meaning of the columns."""
    chosen = OPERATIONS[operation]
    return "\n".join(
        [
            "",
            f"size       {chosen.what_size_is}",
            "minimum    of one operation, from Python: the best batch on its slowest rank; compare this one",
            "median     of all batches; what other programs on this machine do shows here",
            "algorithm  size / minimum",
            f"bus        algorithm x {chosen.bus_factor(ranks):.3g}: what each rank must send or receive at least,",
            "           so that runs with other numbers of ranks can be compared",
        ]
    )


if __name__ == "__main__":
    main()
