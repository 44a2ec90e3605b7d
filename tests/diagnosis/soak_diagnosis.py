"""Injects faults into small jobs, one after the other, and judges the words that a user reads.

    python3 noxfile.py -s soak_diagnosis                        50 drawn faults
    python3 noxfile.py -s soak_diagnosis -- 1000 --seed 3       goes on where it was interrupted
    python3 noxfile.py -s soak_diagnosis -- 8 --only kill,stop --frameworks torch
    python3 noxfile.py -s soak_diagnosis -- --flat 60           jobs without faults, for 60 minutes

Ends with 1 where a target is missed. The records are in .nox/diagnosis; --anew forgets those of this seed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import beside_ddp
import statements
from drawn import BY_NAME, FRAMEWORKS, KINDS, draw
from injection import NotStartedError, inject

MADE = Path(__file__).resolve().parents[2] / ".nox"
RECORDS = MADE / "diagnosis"
FLAT_S, WATCH_S = 15.0, 300.0
BESIDE_DDP = 30
_FEW, _MANY = 50, 1000
_FLAT = [kind.name for kind in KINDS if kind.is_flat]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="?", type=int, default=_MANY if os.environ.get("FARANDOLE_LONG") else _FEW)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds of faults, with commas between them")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="likewise")
    parser.add_argument("--flat", type=float, metavar="MINUTES", help="only jobs without faults, for so long")
    parser.add_argument("--beside-ddp", action="store_true", help="30 of the faults, and the same under torchrun")
    parser.add_argument("--anew", action="store_true", help="forget the records of this seed")
    given = parser.parse_args()
    unknown = {each for each in given.only.split(",") if each} - BY_NAME.keys()
    if unknown:
        parser.error(f"no kind of fault is called {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}")
    return given


def environments() -> dict[str, Path]:
    """Those that noxfile.py has made, by the frameworks in them, and where `farandole inspect` runs."""
    found = dict.fromkeys(("numpy", "torch", "asker"), MADE / "torch")
    newest = max(MADE.glob("tensorflow-2.*"), key=lambda home: int(home.suffix[1:]), default=MADE / "tensorflow")
    found |= {"tensorflow": newest, "mxnet": MADE / "mxnet"}
    return {name: home for name, home in found.items() if home.exists()}


class Session:
    """A run of the session, with the records of its seed."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.only = [each for each in given.only.split(",") if each]
        self.homes = environments()
        self.frameworks = [each for each in given.frameworks.split(",") if each in self.homes]
        RECORDS.mkdir(parents=True, exist_ok=True)
        mode = ["beside-ddp"] if given.beside_ddp else ["flat"] if given.flat else []
        about = "-".join([str(given.seed), *mode, *self.only, *self.frameworks])
        self.file = RECORDS / f"{about.replace(' ', '_')}.jsonl"
        if given.anew or given.flat:
            self.file.unlink(missing_ok=True)
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        self.records: dict[int, dict[str, Any]] = {
            record["fault"]["number"]: record for record in map(json.loads, lines)
        }

    def run(self) -> int:
        """Inject those that have no record yet."""
        if self.records:
            print(f"==> {len(self.records)} faults have records in {self.file}", flush=True)
        for number in range(self.given.faults):
            if number not in self.records:
                self.note(number, FLAT_S)
        return self.report([self.records[number] for number in range(self.given.faults)])

    def watch_flat(self, minutes: float) -> int:
        """Jobs without faults: nothing may be said against any rank."""
        until, number, found = time.monotonic() + 60 * minutes, 0, []
        self.only = _FLAT
        while (left := until - time.monotonic()) > 0:
            found.append(self.note(number, min(left, WATCH_S)))
            number += 1
        return self.report(found)

    def compare(self) -> int:
        """The comparison with DistributedDataParallel; it has no targets."""
        kinds = self.only or beside_ddp.KINDS
        for number in range(BESIDE_DDP):
            if number not in self.records:
                fault = draw(self.given.seed, number, ["torch"], kinds)
                print(f"{number:4}  {fault.described}", flush=True)
                self.keep(number, beside_ddp.compare(fault, self.homes))
        print(beside_ddp.table([*self.records.values()]), flush=True)
        return 0

    def note(self, number: int, flat_s: float) -> dict[str, Any]:
        fault = draw(self.given.seed, number, self.frameworks, self.only)
        print(f"{number:4}  {fault.described}: ", end="", flush=True)
        try:
            record = inject(fault, self.homes, flat_s)
        except NotStartedError as why:
            raise SystemExit(f"the job did not come to its fault:\n{why}") from None
        print(f"{record['result']} after {record['seconds']:.1f} s {record['text'][:150]}", flush=True)
        self.keep(number, record)
        return record

    def keep(self, number: int, record: dict[str, Any]) -> None:
        self.records[number] = record
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def report(self, records: list[dict[str, Any]]) -> int:
        rows = statements.rows(KINDS, records)
        print(statements.table(rows), flush=True)
        missed = statements.missed(rows)
        for each in missed:
            print(f"==> missed: {each}; the records are in {self.file}", flush=True)
        return 1 if missed else 0


def main() -> int:
    given = arguments()
    session = Session(given)
    if given.beside_ddp:
        return session.compare()
    return session.run() if given.flat is None else session.watch_flat(given.flat)


if __name__ == "__main__":
    sys.exit(main())
