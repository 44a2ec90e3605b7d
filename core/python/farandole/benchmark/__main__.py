"""One rank of `farandole bench`; rank 0 prints and writes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import farandole.numpy as fnp
from farandole.benchmark.measure import OPERATIONS, Row, measure
from farandole.benchmark.table import explanation, head, line


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


if __name__ == "__main__":
    main()
