"""One rank of `farandole bench`; rank 0 prints and writes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import farandole.numpy as fnp
from farandole._start import tuning
from farandole.benchmark.measure import OPERATIONS, Row, measure
from farandole.benchmark.table import explanation, head, limits_of, line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m farandole.benchmark", description=__doc__)
    parser.add_argument("--operation", choices=sorted(OPERATIONS), default="allreduce")
    parser.add_argument("--sizes", type=int, nargs="+", default=[], help="bytes, multiples of 4")
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long each size takes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tune", action="store_true", help="measure the limits of this machine, and keep them")
    options = parser.parse_args()
    if options.tune:
        return tune()
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


def tune() -> None:
    """Measure this machine's limits for so many ranks, print and keep them."""
    fnp.init()
    if fnp.size() > 1:
        measured = tuning.measure(fnp.size())
        if fnp.rank() == 0:
            path = tuning.keep(fnp.size(), measured.limits)
            print(limits_of(measured, fnp.size(), path), flush=True)
    fnp.shutdown()


if __name__ == "__main__":
    main()
